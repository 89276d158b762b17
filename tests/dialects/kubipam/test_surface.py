"""The API surface: what the server refuses, what the operator answers, what kubectl shows."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cluster import Kubectl
from tests.support.kubipam import World
from tests.support.operator import built

from berth.dialects.kubipam.kinds import BUSY, FIRST_MATCH, INVALID, RANGE, READY, REQUEST
from berth.errors import Invalid
from berth.kube.resource import Resource
from berth.net import parse_block

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_a_range_becomes_ready_without_a_message(world: World) -> None:
    """K-001"""
    await world.range("192.168.0.0/16", chunkSize=24)
    await world.range_becomes(state=READY, message=None)


async def test_a_request_gets_a_block_of_the_default_size(world: World) -> None:
    """K-002, K-003: the first is .0, the seed's sample shows the second."""
    await world.range("192.168.0.0/16", chunkSize=24)
    assert await world.granted("mynet") == "192.168.0.0/24"
    second = await world.granted("second")
    assert second == "192.168.1.0/24"
    assert parse_block("192.168.0.0/16").covers(parse_block(second))


async def test_a_range_must_have_ranges(world: World) -> None:
    """K-004"""
    with pytest.raises(Invalid, match=r"spec\.ranges"):
        await world.client.create(RANGE, built(RANGE, "p", {"chunkSize": 24}), world.namespace)


@pytest.mark.parametrize("resource", [RANGE, REQUEST])
async def test_both_must_have_a_spec(world: World, resource: Resource) -> None:
    """K-004, K-006"""
    with pytest.raises(Invalid, match="spec: Required"):
        await world.client.create(resource, built(resource, "x"), world.namespace)


async def test_an_empty_range_is_ready_and_grants_nothing(world: World) -> None:
    """K-005"""
    await world.range()
    await world.range_becomes(state=READY)
    await world.ask("r")
    await world.refused("r", BUSY, "allocation with size 32 failed")


@pytest.mark.parametrize("spec", [{}, {"ipam": {}}, {"ipam": {"namespace": "default"}}])
async def test_a_request_must_name_a_range(world: World, spec: dict[str, Any]) -> None:
    """K-006"""
    with pytest.raises(Invalid, match=r"spec\.ipam"):
        await world.client.create(REQUEST, built(REQUEST, "r", spec), world.namespace)


async def test_an_empty_name_is_said_to_be_missing(world: World) -> None:
    """K-007"""
    await world.ask("r", range="")
    await world.refused("r", INVALID, "IPAMRange object not specified")
    await world.ask("slash", range="foo/")
    await world.refused("slash", INVALID, f"IPAMRange {world.namespace}/foo/ not found")


async def test_the_mode_is_filled_in_by_the_schema(world: World) -> None:
    """K-008: already in the answer to the create; no controller writes a spec."""
    created = await world.range("10.0.0.0/24")
    assert created["spec"]["mode"] == FIRST_MATCH
    await world.range_becomes(state=READY)
    assert (await world.get_range())["metadata"]["generation"] == 1


async def test_an_unknown_mode_is_said_by_the_operator(world: World) -> None:
    """K-009"""
    await world.range("10.0.0.0/24", mode="Random")
    message = 'invalid mode "Random": use FirstMatch or RoundRobin'
    await world.range_becomes(state=INVALID, message=message)
    await world.ask("r")
    key = f"{world.namespace}/p"
    await world.refused("r", INVALID, f"IPAMRange {key} not valid: {message}")


async def test_kubectl_shows_upstreams_columns(world: World, kubectl: Kubectl) -> None:
    """K-010"""
    await world.range("192.168.0.0/16")
    await world.granted("r", size=24)
    ranges = (await kubectl("get", "iprange", "-n", world.namespace)).splitlines()
    requests = (await kubectl("get", "ipreq", "-n", world.namespace)).splitlines()
    assert [line.split() for line in ranges] == [["NAME", "MODE", "STATE"], ["p", "FirstMatch", "Ready"]]
    assert requests[0].split() == ["NAME", "IPAM", "SIZE", "STATE", "CIDR"]
    assert requests[1].split() == ["r", "p", "24", "Ready", "192.168.0.0/24"]


async def test_a_status_in_the_manifest_is_dropped(world: World) -> None:
    """K-011"""
    await world.range("192.168.0.0/16")
    body = built(REQUEST, "r", {"ipam": {"name": "p"}, "size": 24})
    body["status"] = {"cidr": "192.168.99.0/24", "state": "Ready"}
    created = await world.client.create(REQUEST, body, world.namespace)
    assert "cidr" not in (created.get("status") or {})
    assert (await world.answered("r"))["cidr"] == "192.168.0.0/24"


async def test_a_description_changes_nothing(world: World) -> None:
    """K-012"""
    await world.range("10.0.0.0/24")
    assert await world.granted("r", description="a network for the printers") == "10.0.0.0/32"
