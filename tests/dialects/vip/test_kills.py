"""T02: the operator is killed before and after every write it makes; another one finishes the work.

Each scenario runs once undisturbed, which numbers its writes, and then once for every way to die.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from tests.support.dying import Fate, dying
from tests.support.operator import eventually, running
from tests.support.vip import World, without_operator

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import State
from berth.errors import NotFound
from berth.kube import meta

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="session"),
]
Check = Callable[[], Awaitable[bool]]
Wait = Callable[[Check], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster) -> AsyncIterator[World]:
    async with without_operator(cluster) as world:
        yield world


class Services:
    """Come, insist on another address, change type, go; one has two families."""

    async def play(self, world: World, wait: Wait) -> None:
        await world.group("four", "1.1.1.0/28")
        await world.group("six", "2001:db8::/64")
        await world.service("a")
        await wait(lambda: _shows(world, "a"))
        await world.service("b", ipFamilyPolicy="RequireDualStack")
        await wait(lambda: _shows(world, "b"))
        await world.edit("a", {"loadBalancerIP": "1.1.1.9"})
        await wait(lambda: _shows(world, "a", "1.1.1.9"))
        await world.edit("b", {"type": "ClusterIP"})
        await wait(lambda: _owns_nothing(world, "b"))
        await world.client.delete(kinds.SERVICE, "a", world.namespace)
        await wait(lambda: _is_gone(world, "a"))
        await world.service("c", loadBalancerIP="1.1.1.3")
        await wait(lambda: self.is_over(world))

    async def is_over(self, world: World) -> bool:
        owned = {name: owner.partition("/")[2] for name, owner in (await world.owned()).items()}
        b = await world.get("b")
        return (
            owned == {"1.1.1.3": "c"}
            and await world.ingress("c") == ("1.1.1.3",)
            and await _is_gone(world, "a")
            and not meta.finalizers(b)
            and await world.ingress("b") == ()
        )


class Waiting:
    """Nothing is free; then an address is, and then a whole group."""

    async def play(self, world: World, wait: Wait) -> None:
        await world.group("one", "1.1.1.0/32")
        await world.service("a")
        await wait(lambda: _shows(world, "a", "1.1.1.0"))
        for name in ("b", "c"):
            await world.service(name)
            await wait(lambda name=name: _waits(world, name))  # type: ignore[misc]
        await world.client.delete(kinds.SERVICE, "a", world.namespace)
        await wait(lambda: _shows(world, "b", "1.1.1.0"))
        await world.group("two", "1.1.2.0/32")
        await wait(lambda: self.is_over(world))

    async def is_over(self, world: World) -> bool:
        addresses = {*await world.ingress("b"), *await world.ingress("c")}
        both = {f"{world.namespace}/{name}" for name in "bc"}
        return (
            addresses == {"1.1.1.0", "1.1.2.0"}
            and set((await world.owned()).values()) == both
            and len(await world.ips()) == 2
            and await _is_gone(world, "a")
            and not await _waits(world, "b")
            and not await _waits(world, "c")
        )


class Migrated:
    """A VirtualIP from its first address to a LoadBalancer; P-080."""

    async def play(self, world: World, wait: Wait) -> None:
        await world.mapping("gsm", "5.5.5.0/28")
        await world.group("new", "5.5.5.0/28")
        await world.service("web", "ClusterIP")
        await world.vip("vip", "web", "5.5.5.5")
        await wait(lambda: _is_in(world, State.VALID))
        change = {"metadata": {"annotations": {kinds.MIGRATE: ""}}}
        await world.client.patch(kinds.VIRTUAL_IP, "vip", change, world.namespace)
        await wait(lambda: self.is_over(world))

    async def is_over(self, world: World) -> bool:
        """Done, held by the Service controller, and exactly one IP object."""
        service = await world.get("web")
        return (
            await _is_in(world, State.MIGRATED)
            and await world.ingress("web") == ("5.5.5.5",)
            and await world.owned() == {"5.5.5.5": f"{world.namespace}/web"}
            and meta.finalizers(service) == [kinds.SERVICE_FINALIZER]
            and kinds.MIGRATING not in meta.annotations(service)
            and await _is_gone(world, "vip-keepalived-clone")
        )


class Deleted:
    """A VirtualIP that comes and goes."""

    async def play(self, world: World, wait: Wait) -> None:
        await world.mapping("gsm", "5.5.5.0/28")
        await world.service("web", "ClusterIP")
        await world.vip("vip", "web")
        await wait(lambda: _is_in(world, State.VALID))
        await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
        await wait(lambda: self.is_over(world))

    async def is_over(self, world: World) -> bool:
        vips = await world.client.list(kinds.VIRTUAL_IP, world.namespace)
        return not vips.items and not await world.ips() and await _is_gone(world, "vip-keepalived-clone")


@pytest.mark.parametrize(
    "scenario", [Services(), Waiting(), Migrated(), Deleted()], ids=lambda one: type(one).__name__
)
async def test_killed_at_every_write_the_end_is_the_same(
    cluster: DevCluster, world: World, scenario: Any
) -> None:
    undisturbed = Fate()
    await _run(cluster, world, scenario, undisturbed)
    deaths = 0
    for number in range(undisturbed.count):
        for after in (False, True):
            fate = Fate(number, after)
            await _run(cluster, world, scenario, fate)
            deaths += fate.died.is_set()
    assert deaths >= 1.6 * undisturbed.count, f"{deaths} deaths at {undisturbed.count} writes"


async def _run(cluster: DevCluster, world: World, scenario: Any, fate: Fate) -> None:
    async def wait(check: Check) -> None:
        """Until it is so, or the operator is dead and it will not be."""

        async def over() -> bool:
            return fate.died.is_set() or await check()

        await eventually(over)

    async with dying(cluster, fate, dialects=("vip",)):
        await scenario.play(world, wait)
    async with running(cluster, crds=(), dialects=("vip",)):

        async def over() -> bool:
            assert await scenario.is_over(world), f"{fate} of {fate.writes[-3:]}: {await world.owned()}"
            return True

        await eventually(over)
        await world.clear()


async def _shows(world: World, name: str, *addresses: str) -> bool:
    found = await world.ingress(name)
    return found == addresses if addresses else bool(found)


async def _waits(world: World, name: str) -> bool:
    return meta.condition(await world.get(name), kinds.CONDITION) is not None


async def _owns_nothing(world: World, name: str) -> bool:
    owned = (await world.owned()).values()
    return f"{world.namespace}/{name}" not in owned and not meta.finalizers(await world.get(name))


async def _is_gone(world: World, name: str) -> bool:
    try:
        await world.get(name)
    except NotFound:
        return True
    return False


async def _is_in(world: World, state: State) -> bool:
    vip = await world.client.get(kinds.VIRTUAL_IP, "vip", world.namespace)
    return bool((vip.get("status") or {}).get("state") == state)
