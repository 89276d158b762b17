"""Metal3's two benchmarks run: the operator's own process writes what the ceiling's client writes."""

from __future__ import annotations

from typing import Any

import pytest
from bench.cluster import NAMESPACES, ceiling, flood, running_operator
from bench.metal3 import ADDRESS_V2, capi_scenario, native_scenario
from tests.support.operator import admin, crds_of, install

from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
SERVED = 20


async def test_every_claim_is_served_and_costs_the_ceilings_writes(cluster: DevCluster) -> None:
    async with admin(cluster) as client:
        await install(client, crds_of("metal3"))
        both = [(native_scenario(), kinds.ADDRESS), (capi_scenario(), ADDRESS_V2)]
        expected = []
        for scenario, addresses in both:
            assert await ceiling(client, scenario, SERVED) > 0
            expected.append(await written(client, scenario.claims, addresses))
        async with running_operator(cluster, "metal3") as operator:
            for (scenario, addresses), shapes in zip(both, expected, strict=True):
                seen = await flood(client, scenario, SERVED)
                assert len(seen.bound_at) == SERVED
                assert await written(client, scenario.claims, addresses) == shapes
            assert operator.cpu_seconds() > 0


async def written(client: Client, claims: Resource, addresses: Resource) -> list[Object]:
    """What is stored in the newest namespace: every claim and address object, less what no two share."""
    spaces = [one for one in (await client.list(NAMESPACES)).items if "bench-" in one["metadata"]["name"]]
    newest = max(spaces, key=lambda space: int(meta.resource_version(space)))["metadata"]["name"]
    found = [*(await client.list(claims, newest)).items, *(await client.list(addresses, newest)).items]
    assert len(found) == 2 * SERVED
    return [_shape(obj) for obj in sorted(found, key=lambda obj: (obj["kind"], obj["metadata"]["name"]))]


def _shape(obj: Object) -> Object:
    owners = [{key: value for key, value in one.items() if key != "uid"} for one in meta.owners(obj)]
    return {
        "name": meta.ref(obj).name if obj["kind"] == "IPAddress" else "",
        "finalizers": meta.finalizers(obj),
        "fields": sorted(obj["spec"]),
        "status": sorted(obj.get("status") or {}),
        "owners": [{**owner, "name": ""} for owner in owners],
    }
