"""What an operator, ours or upstream's, left behind when it was killed: found at the start and put right.

No operator runs while the scene is set; each test starts its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.dying import Refusing, dying
from tests.support.operator import eventually, gone, running
from tests.support.vip import G, World, without_operator

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.translate import Owner, ip_object
from berth.kube import meta
from berth.net import parse_block

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster) -> AsyncIterator[World]:
    async with without_operator(cluster) as world:
        yield world


async def test_upstreams_services_are_taken_over_as_they_are(cluster: DevCluster, world: World) -> None:
    """Finalizer, status and IP object without our UID annotation: nothing is written."""
    await world.group(*G)
    await world.service("web")
    await world.ip("1.1.1.9", G[0], "web")
    await world.hold("web")
    await world.show("web", "1.1.1.9")
    before = await world.get("web"), await world.ips()
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.served("next", "1.1.1.1")
        ips = await world.ips()
        del ips["1.1.1.1"]
        assert (await world.get("web"), ips) == before
        await world.delete("web")
        await world.eventually_owned({"1.1.1.1": f"{world.namespace}/next"})


async def test_a_service_being_deleted_without_its_ip_object_goes(cluster: DevCluster, world: World) -> None:
    """P-041."""
    await world.service("web")
    await world.hold("web")
    await world.show("web", "1.1.1.9")
    await world.client.delete(kinds.SERVICE, "web", world.namespace)
    async with running(cluster, crds=(), dialects=("vip",)):
        await gone(world.client, kinds.SERVICE, "web", world.namespace)


async def test_a_service_being_deleted_with_finalizer_and_empty_status_goes(
    cluster: DevCluster, world: World
) -> None:
    """P-042: upstream crashes here, in a loop."""
    await world.group(*G)
    await world.service("web")
    await world.ip("1.1.1.9", G[0], "web")
    await world.hold("web")
    await world.client.delete(kinds.SERVICE, "web", world.namespace)
    async with running(cluster, crds=(), dialects=("vip",)):
        await gone(world.client, kinds.SERVICE, "web", world.namespace)
        await world.eventually_owned({})


@pytest.mark.parametrize("held", [True, False], ids=["held", "not held"])
async def test_an_ip_object_made_before_the_crash_is_the_services(
    cluster: DevCluster, world: World, held: bool
) -> None:
    """P-043: not the lowest address, the one it has."""
    await world.group(*G)
    await world.service("web")
    await world.ip("1.1.1.9", G[0], "web")
    if held:
        await world.hold("web")
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.addresses("web", "1.1.1.9")
        await world.eventually_owned({"1.1.1.9": f"{world.namespace}/web"})
        assert meta.finalizers(await world.get("web")) == [kinds.SERVICE_FINALIZER]


async def test_of_two_addresses_the_one_that_is_shown_stays(cluster: DevCluster, world: World) -> None:
    """P-043: upstream's leak, after the fact."""
    await world.group(*G)
    await world.service("web")
    for address in ("1.1.1.3", "1.1.1.9"):
        await world.ip(address, G[0], "web")
    await world.hold("web")
    await world.show("web", "1.1.1.9")
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.eventually_owned({"1.1.1.9": f"{world.namespace}/web"})
        assert await world.ingress("web") == ("1.1.1.9",)


async def test_a_type_change_while_nobody_looked_is_put_right(cluster: DevCluster, world: World) -> None:
    """P-039."""
    await world.group(*G)
    await world.service("web", "ClusterIP")
    await world.ip("1.1.1.9", G[0], "web")
    await world.hold("web")
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.eventually_owned({})
        await world.delete("web")


async def test_what_services_show_is_theirs_before_newcomers_are_served(
    cluster: DevCluster, world: World
) -> None:
    """The IP objects are gone, a newcomer is older: nobody's address moves."""
    await world.group("two", "1.1.1.0/31")
    await world.service("a-newcomer")
    for name, address in (("b", "1.1.1.0"), ("c", "1.1.1.1")):
        await world.service(name)
        await world.hold(name)
        await world.show(name, address)
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.eventually_owned({"1.1.1.0": f"{world.namespace}/b", "1.1.1.1": f"{world.namespace}/c"})
        await world.pending("a-newcomer", "no IP could be allocated")


async def test_one_address_shown_by_two_stays_with_the_owner(cluster: DevCluster, world: World) -> None:
    await world.group(*G)
    for name in ("thief", "owner"):
        await world.service(name)
        await world.hold(name)
        await world.show(name, "1.1.1.9")
    await world.ip("1.1.1.9", G[0], "owner")
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.addresses("thief", "1.1.1.1")
        await world.addresses("owner", "1.1.1.9")


async def test_a_namesake_keeps_the_address_and_the_ip_object_learns_its_uid(
    cluster: DevCluster, world: World
) -> None:
    await world.group(*G)
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.served("web", "1.1.1.1")
        await world.served("more", "1.1.1.2")
        await world.delete("web")
    await world.hold("more", "example.org/none")
    await world.client.delete(kinds.SERVICE, "more", world.namespace)
    await world.client.patch(kinds.SERVICE, "more", {"metadata": {"finalizers": None}}, world.namespace)
    again = await world.service("more")
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.addresses("more", "1.1.1.2")

        async def learnt() -> bool:
            ip = await world.client.get(kinds.IP, "1.1.1.2")
            return meta.annotations(ip)[kinds.OWNER_UID] == meta.uid(again)

        await eventually(learnt)


async def test_what_is_written_for_a_service_after_it_went_goes_too(
    cluster: DevCluster, world: World
) -> None:
    """T23: the last write of an operator that was killed comes after the release. No grace, no next sweep."""
    await world.group(*G)
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.served("web", "1.1.1.1")
        uid = meta.uid(await world.get("web"))
        await world.delete("web")
        await world.eventually_owned({})
        late = ip_object(
            parse_block("1.1.1.9"), kinds.GROUP_LABEL, G[0], Owner("Service", world.namespace, "web", uid)
        )
        await world.client.create(kinds.IP, late)
        await world.eventually_owned({})


async def test_a_restart_changes_nothing(cluster: DevCluster, world: World) -> None:
    """P-047: the next operator looks at everything, serves a newcomer, and touches nothing else."""
    await world.group(*G)
    async with running(cluster, crds=(), dialects=("vip",)):
        for name, address in (("a", "1.1.1.1"), ("b", "1.1.1.2")):
            await world.served(name, address)
        await world.service("waits", loadBalancerIP="1.1.1.1")
        await world.pending("waits", "failed to allocate specific ip")
    before = [await world.get(name) for name in ("a", "b", "waits")], await world.ips()
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.served("c", "1.1.1.3")
    ips = await world.ips()
    assert meta.annotations(ips.pop("1.1.1.3"))[kinds.OWNER] == f"{world.namespace}/c"
    assert ([await world.get(name) for name in ("a", "b", "waits")], ips) == before


async def test_a_refused_status_write_costs_no_second_address(cluster: DevCluster, world: World) -> None:
    """P-043: the IP object is made, the status meets a conflict, the next pass writes the same address."""
    await world.group(*G)
    refusing = Refusing(ending="/services/web/status")
    async with dying(cluster, refusing, dialects=("vip",)):
        await world.served("web", "1.1.1.1")
        await world.eventually_owned({"1.1.1.1": f"{world.namespace}/web"})
    assert refusing.refused == 1


async def test_what_was_taken_for_a_service_that_changed_its_mind_is_free(
    cluster: DevCluster, world: World
) -> None:
    """The finalizer could not be stored, so that nothing in the cluster tells of it."""
    await world.group("one", "1.1.1.0/32")
    refusing = Refusing(ending="/services/web", times=1000)
    async with dying(cluster, refusing, dialects=("vip",)):
        await world.service("web")
        await eventually(lambda: _has_refused(refusing))
        await world.edit("web", {"type": "ClusterIP"})
        await world.served("next", "1.1.1.0")


async def _has_refused(refusing: Refusing) -> bool:
    return refusing.refused > 0


async def test_an_ip_object_of_an_earlier_service_goes_when_its_namesake_asks_for_nothing(
    cluster: DevCluster, world: World
) -> None:
    """By its UID: the one of that name is another, and no LoadBalancer."""
    await world.group("one", "1.1.1.0/32")
    await world.service("web", "ClusterIP")
    earlier = Owner("Service", world.namespace, "web", "of-an-earlier-one")
    await world.client.create(kinds.IP, ip_object(parse_block("1.1.1.0"), kinds.GROUP_LABEL, "one", earlier))
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.eventually_owned({})
        await world.served("next", "1.1.1.0")
