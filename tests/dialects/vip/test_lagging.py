"""An operator that lags behind takes nothing from who is served meanwhile: no election, two at work."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.dialects.vip.still import Still
from tests.support.vip import World, without_operator

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import State
from berth.errors import Conflict

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster) -> AsyncIterator[World]:
    async with without_operator(cluster) as world:
        yield world


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
