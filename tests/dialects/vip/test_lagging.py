"""An operator that lags behind takes nothing from who is served meanwhile: no election, two at work."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.dialects.vip.still import Still
from tests.support.operator import gone
from tests.support.vip import G, World, without_operator

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import State
from berth.errors import Conflict
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
ADDRESS = "5.5.5.1"


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster) -> AsyncIterator[World]:
    async with without_operator(cluster) as world:
        yield world


async def _served(world: World) -> Still:
    """An operator that has served Service web."""
    await world.group(*G)
    await world.service("web")
    operator = Still(world)
    await operator.start()
    await operator.work("Service", "web")
    await operator.look(kinds.SERVICE, kinds.IP)
    assert await world.ingress("web") == ("1.1.1.1",)
    return operator


async def test_a_service_that_moved_keeps_its_new_address(world: World) -> None:
    """I1, I3: the IP objects are seen before the Service; one looks as if it had been deleted by hand."""
    late, quick = await _served(world), Still(world)
    await quick.start()
    await world.edit("web", {"loadBalancerIP": "1.1.1.5"})
    await quick.look(kinds.SERVICE)
    await quick.work("Service", "web")
    await world.edit("web", {"loadBalancerIP": None})
    await late.look(kinds.IP)
    with pytest.raises(Conflict):
        await late.work("Service", "web")
    assert "1.1.1.5" in await world.owned()
    await late.work("Service", "web")
    assert await world.ingress("web") == ("1.1.1.5",)
    assert await world.owned() == {"1.1.1.5": f"{world.namespace}/web"}


async def test_a_service_that_asks_again_keeps_what_it_got(world: World) -> None:
    """I1: its type changed and changed back, and only the first of that is seen."""
    late, quick = await _served(world), Still(world)
    await world.edit("web", {"type": "ClusterIP"})
    await late.look(kinds.SERVICE)
    await quick.start()
    await quick.work("Service", "web")
    await world.edit("web", {"type": "LoadBalancer"})
    await quick.look(kinds.SERVICE)
    await quick.work("Service", "web")
    await late.look(kinds.IP)
    with pytest.raises(Conflict):
        await late.work("Service", "web")
    assert await world.owned() == {"1.1.1.1": f"{world.namespace}/web"}
    await late.work("Service", "web")
    assert await world.ingress("web") == ("1.1.1.1",)
    assert meta.finalizers(await world.get("web")) == [kinds.SERVICE_FINALIZER]


async def _valid(world: World) -> tuple[Still, Still]:
    """Two operators that know of a Valid VirtualIP of Service web."""
    await world.mapping("gsm-a", "5.5.5.1/32")
    await world.group("new", "5.5.5.0/24")
    await world.service("web", "ClusterIP")
    await world.vip("vip", "web")
    quick, late = Still(world), Still(world)
    await quick.start()
    for _ in range(2):
        await quick.work("VirtualIP", "vip")
    await world.vip_state("vip", State.VALID)
    await late.start()
    return quick, late


async def _reassociate(world: World, operator: Still) -> None:
    """The Service is locked, and the IP object is its own."""
    await _annotate(world)
    await operator.look(kinds.VIRTUAL_IP)
    for _ in range(3):
        await operator.work("VirtualIP", "vip")
    await world.vip_state("vip", State.CLEANING)
    assert await world.owned() == {ADDRESS: f"{world.namespace}/web"}


async def _annotate(world: World) -> None:
    change = {"metadata": {"annotations": {kinds.MIGRATE: ""}}}
    await world.client.patch(kinds.VIRTUAL_IP, "vip", change, world.namespace)


async def test_a_migration_that_is_not_seen_yet_keeps_its_address(world: World) -> None:
    """I1: the Service owns an IP object without being a LoadBalancer, and its clone serves the address."""
    quick, late = await _valid(world)
    await _reassociate(world, quick)
    await late.look(kinds.SERVICE, kinds.IP)
    with pytest.raises(Conflict):
        await late.work("Service", "web")
    await late.work("Service", "web")
    assert await world.owned() == {ADDRESS: f"{world.namespace}/web"}


async def test_a_migration_that_is_not_seen_yet_outlives_its_service(world: World) -> None:
    """I1: the Service is gone; the clone still serves the address."""
    quick, late = await _valid(world)
    await _reassociate(world, quick)
    await late.look(kinds.IP)
    await world.delete("web")
    await late.look(kinds.SERVICE)
    await late.work("Service", "web")
    assert await world.owned() == {ADDRESS: f"{world.namespace}/web"}


async def test_a_service_deleted_before_its_clone_leaves_the_address_to_the_clone(world: World) -> None:
    """I1: converted and served already, and the clone is not gone yet."""
    quick, _ = await _valid(world)
    await _reassociate(world, quick)
    for _ in range(2):
        await quick.work("VirtualIP", "vip")
    await world.vip_state("vip", State.ASSIGNING)
    await quick.work("Service", "web")
    assert await world.ingress("web") == (ADDRESS,)
    await world.client.delete(kinds.SERVICE, "web", world.namespace)
    await quick.look(kinds.SERVICE)
    await quick.work("Service", "web")
    await gone(world.client, kinds.SERVICE, "web", world.namespace)
    await quick.work("Service", "web")
    assert await world.owned() == {ADDRESS: f"{world.namespace}/web"}
    await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
    await quick.look(kinds.VIRTUAL_IP)
    await quick.work("VirtualIP", "vip")
    await gone(world.client, kinds.VIRTUAL_IP, "vip", world.namespace)
    await quick.work("Service", "web")
    assert await world.owned() == {}


async def test_one_of_two_addresses_taken_for_a_virtual_ip_is_given_back(world: World) -> None:
    """I2, I3: the second operator's status does not go over the first one's."""
    await world.mapping("gsm-a", "5.5.5.0/30")
    await world.service("web", "ClusterIP")
    await world.vip("vip", "web", finalizers=[kinds.IP_FINALIZER])
    await world.ip("5.5.5.0", "gsm-a", "earlier", kinds.MAPPING_LABEL)
    quick, late = Still(world), Still(world)
    await late.start()
    await world.client.delete(kinds.IP, "5.5.5.0")
    await quick.start()
    await quick.work("VirtualIP", "vip")
    with pytest.raises(Conflict):
        await late.work("VirtualIP", "vip")
    await late.look(kinds.VIRTUAL_IP, kinds.IP)
    await late.work("VirtualIP", "vip")
    assert (await world.vip_state("vip", State.VALID))["status"]["ip"] == "5.5.5.0"
    assert await world.owned() == {"5.5.5.0": f"{world.namespace}/vip"}
