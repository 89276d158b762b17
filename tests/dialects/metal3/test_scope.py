"""Contract 6.8, the last row: an operator that looks at a part of the cluster only."""

from __future__ import annotations

import pytest
from tests.support.metal3 import CAPI_CLAIM, SOON, A, World, capi_claim, claim, pool
from tests.support.operator import running

from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_a_watch_filter_leaves_everything_else_alone(cluster: DevCluster, namespace: str) -> None:
    """M-128."""
    async with running(cluster, dialects=("metal3",), watch_filter="v") as filtered:
        world = World(filtered.client, namespace)
        await world.create(pool("pool", A), claim("c1"), capi_claim("m"))
        await world.passed()
        for resource, name in ((kinds.POOL, "pool"), (kinds.CLAIM, "c1"), (CAPI_CLAIM, "m")):
            untouched = await world.get(resource, name)
            assert "status" not in untouched
            assert meta.finalizers(untouched) == []
        chosen = {"metadata": {"labels": {kinds.WATCH_LABEL: "v"}}}
        await world.edit(kinds.POOL, "pool", chosen)
        await world.edit(kinds.CLAIM, "c1", chosen)
        assert (await world.address_of("c1", SOON))["spec"]["address"] == "10.0.0.10"


async def test_a_namespace_leaves_every_other_alone(cluster: DevCluster, namespace: str) -> None:
    """`--namespace`: the same pool in two namespaces, one of them served."""
    async with running(cluster, dialects=("metal3",), namespace=namespace) as started:
        world, other = World(started.client, namespace), World(started.client, "default")
        await other.create(pool(namespace, A), claim(namespace, namespace))
        await world.create(pool("pool", A))
        await world.ask("c1")
        await world.passed()
        assert "status" not in await other.get(kinds.CLAIM, namespace)
        await other.delete(kinds.CLAIM, namespace)
        await other.delete(kinds.POOL, namespace)
