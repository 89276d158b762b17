"""An operator with a list of `loadBalancerClass` values: it serves those and touches nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.operator import Operator, running
from tests.support.vip import G, World

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.crds import crds
from berth.dialects.vip.migrate import State

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
OURS, MORE = "paas.org/vip", "paas.org/more"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    async with running(cluster, crds=crds(), dialects=("vip",), vip_classes=(OURS, MORE)) as operator:
        yield operator


async def test_services_of_its_classes_are_served_and_no_others(world: World) -> None:
    left = [await world.service("plain"), await world.service("other", loadBalancerClass="x/y")]
    await world.group(*G)
    await world.served("web", "1.1.1.1", loadBalancerClass=OURS)
    await world.served("more", "1.1.1.2", loadBalancerClass=MORE)
    assert [await world.get(one["metadata"]["name"]) for one in left] == left


async def test_a_migrated_service_gets_the_first_class(world: World) -> None:
    """Without it the Service would be nobody's once it is a LoadBalancer."""
    await world.mapping("gsm-a", "5.5.5.0/24")
    await world.service("web", "ClusterIP")
    await world.vip("vip", "web", "5.5.5.5")
    await world.vip_state("vip", State.VALID)
    await world.group("new", "5.5.5.0/24")
    change = {"metadata": {"annotations": {kinds.MIGRATE: ""}}}
    await world.client.patch(kinds.VIRTUAL_IP, "vip", change, world.namespace)
    await world.vip_state("vip", State.MIGRATED)
    assert (await world.get("web"))["spec"]["loadBalancerClass"] == OURS
    assert await world.ingress("web") == ("5.5.5.5",)
    await world.delete("web")
    await world.eventually_owned({})
