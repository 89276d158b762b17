"""The specification's own examples, applied with kubectl as a user would."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.support.cluster import Kubectl
from tests.support.metal3 import World, cluster_object
from tests.support.operator import Operator, eventually, running

from berth.devcluster import DevCluster, ports
from berth.dialects.metal3 import kinds

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

EXAMPLES = Path(__file__).parents[3] / "examples" / "metal3"
PLAIN = "test1-controlplane-template-0-pool1"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    """With its webhooks: the examples must pass admission too."""
    port = ports.free(1)[0]
    url = f"https://127.0.0.1:{port}"
    async with running(cluster, dialects=("metal3",), webhook_port=port, webhook_url=url) as started:
        yield started


async def apply(kubectl: Kubectl, name: str, namespace: str) -> None:
    """The file as it is, but for the namespace, which is this test's own."""
    text = (EXAMPLES / name).read_text().replace("namespace: default", f"namespace: {namespace}")
    await kubectl.apply(text)


async def shown(kubectl: Kubectl, kind: str, name: str, namespace: str) -> Any:
    return json.loads(await kubectl("get", kind, name, "-n", namespace, "-o", "json"))


async def test_the_seeds_examples_give_the_addresses_it_shows(world: World, kubectl: Kubectl) -> None:
    """M-044, M-045, M-075. The two differences of contract 7.1: the claim gets .10, where the document shows
    .13, because the lowest comes first; and prefix 25, because its entry says so."""
    await world.create(cluster_object("cluster1"))
    for example in ("ippool", "ipaddress", "ipclaim"):
        await apply(kubectl, f"{example}.yaml", world.namespace)
        await settle(world, example)
    for example in ("ipclaim-specific", "ipclaim-preallocated", "ipaddressclaim"):
        await apply(kubectl, f"{example}.yaml", world.namespace)
    assert (await world.address_of(PLAIN))["spec"] == {
        "address": "192.168.0.10",
        "claim": {"name": PLAIN, "namespace": world.namespace},
        "pool": {"name": "pool1", "namespace": world.namespace},
        "prefix": 25,
        "gateway": "192.168.0.1",
    }
    wanted = await world.address_of("test1-controlplane-template-1-pool1")
    assert wanted["spec"]["address"] == "192.168.0.20"
    assert (await world.address_of("claim1"))["spec"]["address"] == "192.168.0.12"
    assert (await world.capi_address_of("test1-worker-0"))["spec"]["address"] == "192.168.0.11"


async def settle(world: World, example: str) -> None:
    """One after the other, so that it is known who comes first."""
    if example == "ipaddress":
        served = await world.address_of("test1-controlplane-template-2-pool1")
        assert (served["metadata"]["name"], served["spec"]["prefix"]) == ("test1-prov-192-168-0-13", 24)
    if example == "ipclaim":
        await world.address_of(PLAIN)


async def test_the_seeds_shown_address_is_the_third_claims(world: World, kubectl: Kubectl) -> None:
    """M-045: .10, .11, then .13, under the name the document shows."""
    await world.create(cluster_object("cluster1"))
    await apply(kubectl, "ippool.yaml", world.namespace)
    await world.ask_text("first", "second", pool="pool1")
    await apply(kubectl, "ipclaim.yaml", world.namespace)
    assert (await world.address_of(PLAIN))["metadata"]["name"] == "test1-prov-192-168-0-13"

    async def listed() -> bool:
        status = (await shown(kubectl, "ippool", "pool1", world.namespace))["status"]
        return bool(status.get("indexes", {}).get(PLAIN) == "192.168.0.13")

    await eventually(listed)


async def test_every_example_is_one_of_these_kinds() -> None:
    """`berth up` applies them all."""
    found = {
        (document["apiVersion"], document["kind"])
        for path in EXAMPLES.glob("*.yaml")
        for document in yaml.safe_load_all(path.read_text())
    }
    native = {(kinds.POOL.api_version, kind) for kind in ("IPPool", "IPClaim", "IPAddress")}
    assert found == {*native, ("ipam.cluster.x-k8s.io/v1beta2", "IPAddressClaim")}
