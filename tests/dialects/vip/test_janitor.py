"""IP objects whose owner is gone are given back: late, one by one, and never many at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import drop_namespace, make_namespace
from tests.support.operator import admin, install
from tests.support.vip import World

from berth.control.cache import Cache
from berth.control.informers import Informer, Served, WatchSpec
from berth.devcluster import DevCluster
from berth.dialects.orphans import RELEASE_ORPHANS, Brake, Collector, Pace, Suspect
from berth.dialects.vip import kinds, leases, migration_locks
from berth.dialects.vip.crds import crds
from berth.dialects.vip.migrate import State
from berth.dialects.vip.orphans import PACE, OrphanedIPs, owners
from berth.dialects.vip.translate import Owner, ip_object, owner
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.net import parse_block

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@dataclass(slots=True)
class Scene:
    """Caches as the operator's would be, filled by hand, and a clock of the test's own."""

    world: World
    janitor: Collector[Suspect]
    kept: dict[str, Informer]
    told: list[str]  # the Events
    now: float = 0.0

    async def look(self) -> None:
        for resource, kept in self.kept.items():
            listing = await self.world.client.list(_RESOURCES[resource])
            kept.cache.replace(listing.items, listing.resource_version)

    async def sweep(self, now: float) -> int:
        self.now = now
        await self.look()
        return await self.janitor.sweep()


_RESOURCES = {
    one.kind: one for one in (kinds.IP, kinds.SERVICE, kinds.VIRTUAL_IP, kinds.IPGROUP, kinds.MAPPING)
}


@pytest_asyncio.fixture(loop_scope="session")
async def scene(cluster: DevCluster, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    async with admin(cluster) as client:
        await install(client, crds())
        world = World(client, await make_namespace(cluster))
        kept = {name: _kept(resource, client) for name, resource in _RESOURCES.items()}
        book = leases.IPLedger(kept["IP"])
        found: list[Scene] = []
        pace = getattr(request, "param", PACE)
        kinds_of = owners(kept["Service"], kept["VirtualIP"])
        pools = {kinds.GROUP_LABEL: kept["IPGroup"], kinds.MAPPING_LABEL: kept["GroupSegmentMapping"]}
        told: list[str] = []
        events: Any = SimpleNamespace(event=lambda *said: told.append(said[3]))
        orphans = OrphanedIPs(book, kinds_of, pools, events)
        janitor = Collector(orphans, pace, clock=lambda: found[0].now)
        found.append(Scene(world, janitor, kept, told))
        yield found[0]
        await world.clear()
        await drop_namespace(cluster, world.namespace)


def _kept(resource: Resource, client: Client) -> Informer:
    indexes = {kinds.IP: leases.indexes(), kinds.VIRTUAL_IP: migration_locks.indexes()}.get(resource, {})
    return Informer(WatchSpec((resource,), indexes), Cache(indexes), client, Served(resource))


async def test_an_orphan_is_given_back_after_two_sightings_and_a_grace(scene: Scene) -> None:
    await scene.world.ip("1.1.1.1", "g", "gone")
    assert await scene.sweep(0) == 0
    assert await scene.sweep(60) == 0
    assert await scene.sweep(90) == 1
    assert await scene.world.ips() == {}


async def test_an_owner_that_comes_back_clears_the_suspicion(scene: Scene) -> None:
    await scene.world.ip("1.1.1.1", "g", "web")
    assert await scene.sweep(0) == 0
    await scene.world.service("web", "ClusterIP")
    assert await scene.sweep(60) == 0
    await scene.world.client.delete(kinds.SERVICE, "web", scene.world.namespace)
    assert await scene.sweep(100) == 0
    assert list(await scene.world.ips()) == ["1.1.1.1"]


async def test_a_cache_that_lags_costs_nobody_an_address(scene: Scene) -> None:
    await scene.world.ip("1.1.1.1", "g", "web")
    await scene.sweep(0)
    await scene.world.service("web")
    scene.now = 200
    assert await scene.janitor.sweep() == 0  # without a look at the list: the live read finds the Service
    assert list(await scene.world.ips()) == ["1.1.1.1"]


async def test_a_virtual_ips_address_is_judged_by_the_virtual_ip(scene: Scene) -> None:
    await scene.world.service("vip", "ClusterIP")
    await scene.world.ip("5.5.5.5", "gsm", "vip", kinds.MAPPING_LABEL)
    await scene.sweep(0)
    assert await scene.sweep(90) == 1


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
async def test_an_address_that_a_clone_still_serves_stays(scene: Scene, again: bool) -> None:
    """I1: its Service was deleted while the migration was held."""
    world = scene.world
    await world.vip("vip", "web", annotations={kinds.MIGRATE: ""}, finalizers=[kinds.CLONE_FINALIZER])
    status = {"status": {"ip": "5.5.5.5", "service": "web", "state": State.CONVERTING}}
    await world.client.patch(kinds.VIRTUAL_IP, "vip", status, world.namespace, subresource="status")
    if again:
        await world.service("web", "ClusterIP")
    earlier = Owner("Service", world.namespace, "web", "of-an-earlier-one")
    await world.client.create(kinds.IP, ip_object(parse_block("5.5.5.5"), kinds.GROUP_LABEL, "g", earlier))
    await scene.sweep(0)
    assert await scene.sweep(90) == 0
    await world.client.patch(kinds.VIRTUAL_IP, "vip", {"metadata": {"finalizers": None}}, world.namespace)
    await scene.sweep(100)
    assert await scene.sweep(200) == 1


async def test_an_object_without_an_owner_is_nobodys_to_judge(scene: Scene) -> None:
    await scene.world.client.create(
        kinds.IP, {"apiVersion": "paas.org/v1", "kind": "IP", "metadata": {"name": "1.1.1.1"}}
    )
    await scene.sweep(0)
    assert await scene.sweep(1000) == 0


@pytest.mark.parametrize("shown", [False, True], ids=["without it", "showing it"])
async def test_a_namesake_is_not_the_owner_unless_it_shows_the_address(scene: Scene, shown: bool) -> None:
    """A Service of another class now; or one that was restored, whose UID is new and whose address is not."""
    world = scene.world
    await world.service("web", loadBalancerClass="x/y")
    if shown:
        await world.show("web", "1.1.1.1")
    earlier = Owner("Service", world.namespace, "web", "of-an-earlier-one")
    made = ip_object(parse_block("1.1.1.1"), kinds.GROUP_LABEL, "g", earlier)
    await world.client.create(kinds.IP, made)
    await scene.sweep(0)
    assert await scene.sweep(90) == (0 if shown else 1)
    assert list(await world.ips()) == (["1.1.1.1"] if shown else [])


@pytest.mark.parametrize("shown", [False, True], ids=["without it", "showing it"])
async def test_a_service_of_another_class_by_now_loses_what_it_does_not_show(
    scene: Scene, shown: bool
) -> None:
    """I2: nobody ran while its type changed, and changed back. What it shows may be served: that stays."""
    world = scene.world
    service = await world.service("web", loadBalancerClass="x/y")
    await world.hold("web")
    await world.show("web", "1.1.1.1" if shown else "9.9.9.9")
    record = ip_object(parse_block("1.1.1.1"), kinds.GROUP_LABEL, "g", owner(service))
    await world.client.create(kinds.IP, record)
    await scene.sweep(0)
    assert await scene.sweep(60) == 0
    assert await scene.sweep(90) == (0 if shown else 1)
    found = await world.get("web")
    assert meta.finalizers(found) == ([kinds.SERVICE_FINALIZER] if shown else [])
    assert await world.ingress("web") == ("1.1.1.1" if shown else "9.9.9.9",)
    await world.client.patch(kinds.SERVICE, "web", {"metadata": {"finalizers": None}}, world.namespace)


async def test_a_namesake_that_took_the_address_over_keeps_it(scene: Scene) -> None:
    """Since our last look: the live read of the IP object tells."""
    world = scene.world
    service = await world.service("web")
    earlier = Owner("Service", world.namespace, "web", "of-an-earlier-one")
    made = ip_object(parse_block("1.1.1.1"), kinds.GROUP_LABEL, "g", earlier)
    await world.client.create(kinds.IP, made)
    await scene.sweep(0)
    uid = {"metadata": {"annotations": {kinds.OWNER_UID: meta.uid(service)}}}
    await world.client.patch(kinds.IP, "1.1.1.1", uid)
    scene.now = 90
    assert await scene.janitor.sweep() == 0  # without a look at the list
    assert list(await world.ips()) == ["1.1.1.1"]


@pytest.mark.parametrize("scene", [Pace(30.0, 90.0, Brake(0, 0.5))], indirect=True)
async def test_most_of_one_pool_is_too_much_however_many_others_there_are(scene: Scene) -> None:
    await scene.world.service("web")
    for address in ("1.1.1.1", "1.1.1.2"):
        await scene.world.ip(address, "g", "gone")
    for last in range(8):
        await scene.world.ip(f"2.2.2.{last}", "h", "web")
    await scene.sweep(0)
    assert await scene.sweep(100) == 0
    assert len(await scene.world.ips()) == 10


async def test_too_many_at_once_are_left_for_a_person(scene: Scene) -> None:
    for last in range(11):
        await scene.world.ip(f"1.1.1.{last}", "g", f"gone-{last}")
    await scene.sweep(0)
    assert await scene.sweep(100) == 0
    assert len(await scene.world.ips()) == 11


async def test_a_persons_word_on_the_group_lets_just_those_go(scene: Scene) -> None:
    """The way out of the brake: the Event names it."""
    world = scene.world
    await world.group("g", "1.1.1.0/24")
    for last in range(11):
        await world.ip(f"1.1.1.{last}", "g", f"gone-{last}")
    await scene.sweep(0)
    assert await scene.sweep(100) == 0
    word = scene.told[-1].rpartition("=")[2]
    await world.client.patch(kinds.IPGROUP, "g", {"metadata": {"annotations": {RELEASE_ORPHANS: word}}})
    await world.ip("1.1.1.20", "g", "gone-20")
    assert await scene.sweep(200) == 0  # one more than was agreed to
    await world.client.delete(kinds.IP, "1.1.1.20")
    assert await scene.sweep(300) == 11
    assert await world.ips() == {}
