"""T08, T09, T22, T31: three operators at once, a killed API server, odd deletions, edits under load."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress

import pytest
import pytest_asyncio
from tests.support.operator import admin, built, eventually, install, running
from tests.support.vip import NAMESPACES, World, numbered, service

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.crds import crds
from berth.errors import AlreadyExists, Conflict, NotFound
from berth.kube import meta

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="session"),
]
ROUNDS = 5
SERVICES = 100


@pytest_asyncio.fixture(loop_scope="session")
async def own() -> AsyncIterator[DevCluster]:
    """A control plane of its own: this one is killed."""
    async with DevCluster() as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def world(own: DevCluster) -> AsyncIterator[World]:
    async with admin(own) as client:
        await install(client, crds())
        await client.create(NAMESPACES, built(NAMESPACES, "test"))
        yield World(client)


async def _ask(world: World, names: list[str]) -> None:
    await asyncio.gather(*(world.service(name, allocateLoadBalancerNodePorts=False) for name in names))


async def _drop(world: World, names: list[str]) -> None:
    await asyncio.gather(*(world.client.delete(kinds.SERVICE, name, world.namespace) for name in names))


async def _shown(world: World) -> dict[str, str]:
    services = await world.client.list(kinds.SERVICE, world.namespace)
    entries = {
        one["metadata"]["name"]: one["status"]["loadBalancer"].get("ingress") for one in services.items
    }
    return {name: found[0]["ip"] for name, found in entries.items() if found}


async def _sound(world: World, names: list[str], seconds: float = 60.0) -> None:
    """I1, I2, I4: all served, no address twice, every IP object shown by its owner and none beside."""

    async def look() -> bool:
        shown, owned = await _shown(world), await world.owned()
        assert len(shown) == len(names), f"{len(shown)} of {len(names)} are served"
        assert len(set(shown.values())) == len(shown)
        expected = {address: f"{world.namespace}/{name}" for name, address in shown.items()}
        assert owned == expected
        return True

    await eventually(look, seconds, every=0.1)


async def _empty(world: World) -> None:
    async def look() -> bool:
        return not await world.ips() and not (await world.client.list(kinds.SERVICE, world.namespace)).items

    await eventually(look, 60, every=0.1)


async def test_three_operators_without_election_never_give_one_address_twice(
    own: DevCluster, world: World
) -> None:
    """T08, P-048: five rounds of a hundred Services; the first group has 64 addresses, all in both groups."""
    await world.group("a", "10.0.0.0/26")
    await world.group("b", "10.0.0.0/24")
    names = numbered("s", range(SERVICES))
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(running(own, crds=(), dialects=("vip",)))
        for _ in range(ROUNDS):
            await _ask(world, names)
            await _sound(world, names)
            await _drop(world, names)
            await _empty(world)


async def test_an_api_server_killed_under_load_costs_nobody_an_address(own: DevCluster, world: World) -> None:
    """T09: three times, while Services come."""
    await world.group("a", "10.0.0.0/16")
    names = numbered("s", range(SERVICES))
    async with running(own, crds=(), dialects=("vip",)):
        before: dict[str, str] = {}
        for turn in range(3):
            batch = names[turn * 30 : turn * 30 + 30]
            asking = asyncio.create_task(_ask_anyway(world, batch))
            enough = len(before) + 10
            await eventually(lambda enough=enough: _has_more(world, enough))  # type: ignore[misc]
            await own.restart_apiserver(kill=True)
            await asking
            await _sound(world, names[: turn * 30 + 30])
            shown = await _shown(world)
            assert {name: shown[name] for name in before} == before  # I3, I5
            before = shown


async def _has_more(world: World, count: int) -> bool:
    return len(await _shown(world)) > count


async def _ask_anyway(world: World, names: list[str]) -> None:
    async def ask(name: str) -> bool:
        body = service(name, allocateLoadBalancerNodePorts=False)
        with suppress(AlreadyExists):  # it had been stored, and the answer was lost
            await world.client.create(kinds.SERVICE, body, world.namespace)
        return True

    for name in names:
        await eventually(lambda name=name: ask(name))  # type: ignore[misc]


async def test_recreated_at_once_held_by_others_torn_away(own: DevCluster, world: World) -> None:
    """T22: 50 Services, each deleted in one of the odd ways, and made again within a second."""
    await world.group("a", "10.0.0.0/25")
    names = numbered("s", range(50))
    dice = random.Random(22)
    async with running(own, crds=(), dialects=("vip",)):
        await _ask(world, names)
        await _sound(world, names)
        await asyncio.gather(*(_replace(world, name, dice.randrange(3)) for name in names))
        await _sound(world, names)
        await _drop(world, names)
        await _empty(world)


async def _replace(world: World, name: str, way: int) -> None:
    other = "example.org/hold"
    if way == 1:
        await _retry(world, name, [*meta.finalizers(await world.get(name)), other])
    await world.client.delete(kinds.SERVICE, name, world.namespace)
    if way == 1:
        await eventually(lambda: _let_go(world, name, other))
    if way == 2:
        await _retry(world, name, None)  # by force: its IP object is left to the namesake

    async def again() -> bool:
        await world.service(name, allocateLoadBalancerNodePorts=False)
        return True

    await eventually(again)


async def _retry(world: World, name: str, finalizers: list[str] | None) -> None:
    try:
        body = {"metadata": {"finalizers": finalizers}}
        await world.client.patch(kinds.SERVICE, name, body, world.namespace)
    except NotFound:
        return


async def _let_go(world: World, name: str, finalizer: str) -> bool:
    try:
        found = await world.get(name)
        rest = [one for one in meta.finalizers(found) if one != finalizer]
        body = {"metadata": {"finalizers": rest, "resourceVersion": meta.resource_version(found)}}
        await world.client.patch(kinds.SERVICE, name, body, world.namespace)
    except (NotFound, Conflict) as error:
        return isinstance(error, NotFound)
    return True


async def test_groups_edited_under_load_move_nobody(own: DevCluster, world: World) -> None:
    """T31: 20 edits while Services come and go: shrunk, moved, excluded, deleted and made anew."""
    dice = random.Random(31)
    await world.group("a", "10.0.0.0/24")
    await world.group("b", "10.1.0.0/24")
    await world.group("c", "10.3.0.0/24")  # room for whoever finds none in those
    names = numbered("s", range(60))
    async with running(own, crds=(), dialects=("vip",)):
        await _ask(world, names)
        await _sound(world, names)
        kept = await _shown(world)
        for turn in range(20):
            fresh = numbered(f"t{turn}-", range(5))
            is_remade = turn % 4 == 3
            await asyncio.gather(_ask(world, fresh), _edit(world, dice, is_remade))
            await _sound(world, [*names, *fresh])
            shown = await _shown(world)
            assert {name: shown[name] for name in names} == kept
            await _drop(world, fresh)
            if is_remade:  # it stays until its last address is free
                await eventually(lambda: world.group("b", "10.1.0.0/24"))


async def _edit(world: World, dice: random.Random, is_remade: bool) -> None:
    segment = dice.choice(["10.0.0.0/24", "10.0.0.0/26", "10.0.0.128/25", "10.2.0.0/24"])
    excluded = [f"10.0.0.{dice.randrange(256)}" for _ in range(dice.randrange(5))]
    await world.edit_group("a", {"segment": segment, "excludedIPs": excluded})
    if is_remade:
        await world.client.delete(kinds.IPGROUP, "b")
    else:
        other = dice.choice(["10.1.0.0/24", "10.1.0.0/30", "10.1.0.128/25", "10.4.0.0/24"])
        await world.edit_group("b", {"segment": other})
