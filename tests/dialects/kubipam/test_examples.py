"""The seed's own examples, with kubectl, as its reader would try them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from tests.support.cluster import Kubectl
from tests.support.kubipam import World
from tests.support.operator import Operator

from berth.dialects.kubipam.kinds import DELETING, READY
from berth.net import parse_block

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
EXAMPLES = Path(__file__).parents[3] / "examples" / "kubipam"


@pytest_asyncio.fixture(loop_scope="session")
async def default(operator: Operator, kubectl: Kubectl) -> AsyncIterator[World]:
    """The examples are written for the namespace `default`; it is left empty."""
    yield World(operator.client, "default")
    await kubectl("delete", "ipamrequests,ipamranges", "--all", "-n", "default")


async def apply(kubectl: Kubectl, name: str) -> None:
    await kubectl.apply((EXAMPLES / name).read_text())


async def test_the_seeds_request_gets_a_network_of_the_seeds_range(default: World, kubectl: Kubectl) -> None:
    """K-002, K-003, and the release that the seed promises."""
    await apply(kubectl, "range.yaml")
    await apply(kubectl, "request.yaml")
    status = await default.becomes("mynet", state=READY)
    network = parse_block(status["cidr"])
    assert network.length == 24
    assert parse_block("192.168.0.0/16").covers(network)
    await kubectl("delete", "ipreq", "mynet", "-n", "default")
    assert await default.granted("next", range="mynetworkpool") == str(network)


async def test_as_the_second_it_gets_what_the_seed_shows(default: World, kubectl: Kubectl) -> None:
    """K-003: 192.168.1.0/24."""
    await apply(kubectl, "range.yaml")
    await default.granted("first", range="mynetworkpool")
    await apply(kubectl, "request.yaml")
    await default.becomes("mynet", state=READY)
    shown = orjson.loads(await kubectl("get", "ipamrequest", "mynet", "-n", "default", "-o", "json"))
    assert {key: shown["status"][key] for key in ("cidr", "state")} == {
        "cidr": "192.168.1.0/24",
        "state": "Ready",
    }


async def test_sizes_and_certain_blocks(default: World, kubectl: Kubectl) -> None:
    await apply(kubectl, "range.yaml")
    await apply(kubectl, "more-requests.yaml")
    await default.becomes("printer", state=READY)
    assert (await default.status("printer"))["cidr"].endswith("/32")
    await default.becomes("office", state=READY, cidr="192.168.42.0/24")
    await default.becomes("gateway", state=READY, cidr="192.168.77.1/32")


async def test_ranges_of_every_kind_of_entry(default: World, kubectl: Kubectl) -> None:
    await apply(kubectl, "round-robin.yaml")
    await default.range_becomes("floating", state=READY)
    await default.becomes("floating-net", state=READY, cidr="fd00:1::/64")
    await default.range_becomes("floating-v6", roundRobin=["fd00:1:0:1::/64"])


async def test_a_range_cannot_go_while_requests_refer_to_it(default: World, kubectl: Kubectl) -> None:
    """K-077, as the seed says it: and both go with one command when all is deleted."""
    await apply(kubectl, "range.yaml")
    await apply(kubectl, "request.yaml")
    await default.becomes("mynet", state=READY)
    await kubectl("delete", "iprange", "mynetworkpool", "-n", "default", "--wait=false")
    await default.range_becomes("mynetworkpool", state=DELETING)
    await kubectl("delete", "ipreq", "mynet", "-n", "default")
    await default.range_gone("mynetworkpool")


async def test_a_modified_spec_is_refused_with_a_sentence(default: World, kubectl: Kubectl) -> None:
    """The seed: the specification MUST never be modified. K-093"""
    await apply(kubectl, "range.yaml")
    with pytest.raises(AssertionError, match="must never be modified"):
        await kubectl.apply((EXAMPLES / "range.yaml").read_text().replace("/16", "/15"))
