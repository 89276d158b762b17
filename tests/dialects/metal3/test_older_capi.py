"""A control plane without Cluster API, and then with an older one that serves v1beta1 only."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.metal3 import A, World, claim, pool
from tests.support.operator import built, capi_crds, eventually, install, running

from berth.devcluster import DevCluster
from berth.dialects.metal3 import Metal3, kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

OLD_CLAIM, OLD_ADDRESS = kinds.CAPI_CLAIMS[1], kinds.CAPI_ADDRESSES[1]


def old_crds() -> list[dict[str, Any]]:
    """Cluster API's CRDs before v1beta2."""
    crds = capi_crds()
    for crd in crds:
        versions = [version for version in crd["spec"]["versions"] if version["name"] == "v1beta1"]
        crd["spec"]["versions"] = [{**version, "storage": True} for version in versions]
    return crds


def old_claim(name: str) -> dict[str, Any]:
    reference = {"apiGroup": kinds.GROUP, "kind": "IPPool", "name": "pool"}
    return built(OLD_CLAIM, name, {"poolRef": reference})


async def test_cluster_api_may_be_missing_and_come_later_and_be_old() -> None:
    """Issue 4.7: both versions; conditions in the old form, with a severity; the same owner flags."""
    async with DevCluster() as own, running(own, dialects=("metal3",), crds=Metal3().crds()) as started:
        world = World(started.client, "default")
        await world.create(pool("pool", A), claim("c1"))
        await world.address_of("c1")
        await install(started.client, old_crds())
        await world.create(*(old_claim(name) for name in ("m1", "m2", "m3")))
        served = [await eventually(lambda name=name: ready(world, name), 30) for name in ("m1", "m2")]  # type: ignore[misc]
        assert [(one["status"], one["reason"]) for one in served] == [("True", "AddressAllocated")] * 2
        refused = await eventually(lambda: ready(world, "m3"), 30)
        assert (refused["status"], refused["reason"], refused["severity"]) == (
            "False",
            "PoolExhausted",
            "Error",
        )
        record = await world.get(OLD_ADDRESS, "a-10-0-0-11")
        assert record["apiVersion"] == "ipam.cluster.x-k8s.io/v1beta1"
        assert [owner.get("controller") for owner in meta.owners(record)] == [False, True]
        await world.remove(OLD_CLAIM, "m1")
        assert (await eventually(lambda: ready(world, "m3", "True"), 30))["reason"] == "AddressAllocated"


async def ready(world: World, name: str, status: str = "") -> dict[str, Any]:
    found = meta.condition(await world.get(OLD_CLAIM, name), "Ready") or {}
    assert not status or found.get("status") == status
    return found
