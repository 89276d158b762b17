"""At rest nothing is written, whatever wakes the operator; and the metrics tell what there is."""

from __future__ import annotations

import aiohttp
import pytest
from tests.support.dying import Fate, dying
from tests.support.operator import Operator, eventually
from tests.support.vip import World

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import State
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
LATE = ("5.5.5.9", "5.5.5.10", "5.5.5.11")


async def test_a_settled_world_is_looked_at_again_and_again_without_a_request(
    cluster: DevCluster, world: World
) -> None:
    """I5: Services of all sorts, groups, a VirtualIP and a migrated one; a second operator, every 50 ms."""
    await world.group("four", "1.1.1.0/31")
    await world.group("six", "2001:db8::/64")
    await world.mapping("gsm", "5.5.5.0/24")
    await world.group("new", "5.5.5.0/28", ["5.5.5.0"])
    await world.service("target", "ClusterIP")
    await world.service("other", "ClusterIP")
    for name, target in (("vip", "target"), ("old", "other")):
        await world.vip(name, target)
        await world.vip_state(name, State.VALID)
    change = {"metadata": {"annotations": {kinds.MIGRATE: ""}}}
    await world.client.patch(kinds.VIRTUAL_IP, "old", change, world.namespace)
    await world.vip_state("old", State.MIGRATED)
    await world.served("both", ipFamilyPolicy="RequireDualStack")
    await world.served("some", ipFamilyPolicy="PreferDualStack", annotations={"berth.dev/address": "1.1.1.1"})
    await world.service("waits", loadBalancerIP="1.1.1.1")
    await world.pending("waits", "failed to allocate specific ip")
    await eventually(lambda: _is_counted(world))

    before = await _versions(world)
    fate = Fate()
    async with dying(cluster, fate, dialects=("vip",), vip_resync_seconds=0.05):
        for address in LATE:  # each is a while in which everything is looked at many times
            await world.served(f"late-{address.replace('.', '-')}", loadBalancerIP=address)
    assert [request for request in (*fate.reads, *fate.writes) if not _is_of_the_late(request)] == []
    assert before.items() <= (await _versions(world)).items()  # the first operator wrote nothing either


def _is_of_the_late(request: str) -> bool:
    """Their own requests, and what their addresses do to the count of their group."""
    if "/events" in request or "/paas.org/v1/ipgroups/new" in request:
        return True
    return "late-" in request or any(request.endswith(f"/ips/{address}") for address in LATE)


async def _versions(world: World) -> dict[tuple[str, str], str]:
    """Every object but the group of the late ones."""
    found = [
        *(await world.client.list(kinds.SERVICE, world.namespace)).items,
        *(await world.client.list(kinds.VIRTUAL_IP, world.namespace)).items,
        *(await world.client.list(kinds.IP)).items,
        *(await world.client.list(kinds.MAPPING)).items,
        *(one for one in (await world.client.list(kinds.IPGROUP)).items if one["metadata"]["name"] != "new"),
    ]
    return {(one["kind"], one["metadata"]["name"]): meta.resource_version(one) for one in found}


async def _is_counted(world: World) -> bool:
    """The groups' statuses have caught up."""
    used = {"four": 2, "six": 2, "new": 1}
    for name, count in used.items():
        group = await world.client.get(kinds.IPGROUP, name)
        if ((group.get("status") or {}).get("addresses") or {}).get("used") != count:
            return False
    return True


async def test_metrics_tell_pools_and_services(world: World, operator: Operator) -> None:
    await world.group("one", "1.1.1.0/32")
    await world.served("web", "1.1.1.0")
    await world.service("waits")
    await world.pending("waits", "no IP could be allocated")

    async def told() -> bool:
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"http://127.0.0.1:{operator.listening.metrics}/metrics")
            lines = (await answer.text()).splitlines()
        assert 'berth_pool_addresses_used{dialect="vip",namespace="",pool="one"} 1.0' in lines
        assert 'berth_claims{dialect="vip",state="Bound"} 1.0' in lines
        assert 'berth_claims{dialect="vip",state="Waiting"} 1.0' in lines
        return True

    await eventually(told)
