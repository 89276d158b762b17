"""T26: a secret's replacement with calls lost, before and after their effect. (Killed: test_kills.py.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.killing import API_PENDING, PENDING_SECONDS, serves, settled
from tests.support.line import Each, Fate, Line, line
from tests.support.operator import eventually
from tests.support.vitistack import VALUE, Api, World, address_of, emptied, fresh, of, operating, prepared

from berth.devcluster import DevCluster
from berth.errors import StatusError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
Fates = dict[str, dict[int, Fate]]
TIMES = 5  # each way to spoil a rotation
ENOUGH = 50
AT_ONCE = 10
# Of both addresses, by the controller. One that is spoiled is made again: the third is a part of that.
CALLS = 2
SPOILED = ((1,), (2,), (1, 2), (1, 3), (2, 3))
WISHES = {"ip-family": "dual", "retention-period-days": "1"}  # retention: its record shows the rest


def plans() -> Iterator[tuple[str, dict[int, Fate]]]:
    """A Service for each rotation, and which of its calls are spoiled, how."""
    for fate in (Fate.CUT, Fate.LOSE):
        for numbers in SPOILED:
            for time in range(TIMES):
                yield f"{fate}-{'-'.join(map(str, numbers))}-{time}", dict.fromkeys(numbers, fate)


async def rested(world: World, names: list[str]) -> None:
    """All are there and confirmed, and the controller asks nothing more of its own."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def create(name: str) -> None:
        async with limit:
            await world.create(name, annotations=WISHES)
            await world.rested(name)

    await asyncio.gather(*map(create, names))


async def rotate(world: World, name: str) -> None:
    with suppress(StatusError):  # refused, or done: both are fine, half done is not
        await world.annotate(name, secret="my-secret")
    addresses = address_of(await world.get(name)).split(",")
    assert len(addresses) == 2
    assert all(world.api.entries(address)[name].active for address in addresses), f"{name}: taken away"


async def holds(world: World, name: str) -> None:
    """Its Service names one secret, which opens both addresses; the other opens neither."""
    values = {"my-secret": VALUE, "default": await world.default_secret()}

    async def is_opened() -> bool:
        """By the secret it names; the controller makes sure of that without being asked."""
        live = await world.get(name)
        named = values[of(live, "secret")]
        (other,) = set(values.values()) - {named}
        return all(
            [
                await world.opens(address, named, name) and not await world.opens(address, other, name)
                for address in address_of(live).split(",")
            ]
        )

    assert await eventually(is_opened, 60, every=0.2), name


async def goes(world: World, name: str) -> None:
    """Its terms can be changed, and it can be deleted."""

    async def is_amended() -> bool:
        await world.annotate(name, deny_external_cleanup="true", retention_period_days="0")
        return True

    assert await eventually(is_amended, 60)
    addresses = address_of(await world.get(name)).split(",")

    async def is_known() -> bool:
        """The controller, which makes sure of the replacement, may send older terms before these."""
        entries = [world.api.entries(address)[name] for address in addresses]
        return all(entry.active and entry.deny and entry.retention == 0 for entry in entries)

    assert await eventually(is_known, 60)
    await world.delete(name)


async def calls_of_one(world: World, wire: Line) -> int:
    """How many an undisturbed rotation makes."""
    await rested(world, ["quiet"])
    wire.each = each = Each()
    await rotate(world, "quiet")
    await holds(world, "quiet")
    calls = each.calls["quiet"]
    await goes(world, "quiet")
    return calls


async def spoil(world: World, wire: Line, fates: Fates) -> None:
    """Rotations side by side, each with its own calls spoiled."""
    await rested(world, list(fates))
    wire.each, limit = Each(fates), asyncio.Semaphore(AT_ONCE)
    each = wire.each

    async def is_through(name: str) -> bool:
        return each.is_through(name)

    async def one(name: str) -> None:
        async with limit:
            await rotate(world, name)
            assert await eventually(lambda: is_through(name), 60), f"{name}: {each.calls[name]} calls"

    await asyncio.gather(*map(one, fates))

    async def are_spoiled() -> bool:
        """The last answers are lost a moment after their calls were counted."""
        return wire.spoiled == sum(map(len, fates.values()))

    assert await eventually(are_spoiled, 60)


async def test_a_rotation_cut_at_every_call_leaves_one_owner(
    cluster: DevCluster, tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T26, T14: 50 rotations of dual Services, each with one of its own calls spoiled, or one and the turning
    back: each owns both its addresses with the secret it names, then none.
    """
    api, fates = Api(tmp_path, API_PENDING), dict(plans())
    api.start()
    try:
        async with (
            prepared(cluster) as client,
            line(api.url) as (wire, url),
            operating(cluster, api, api_url=url, vitistack_pending_seconds=PENDING_SECONDS),
        ):
            world = await fresh(World(client, api, ""))
            await world.secret()
            await serves(world)
            assert await calls_of_one(world, wire) >= CALLS
            await spoil(world, wire, fates)
            await asyncio.gather(*(holds(world, name) for name in fates))
            assert not await settled(world)
            await asyncio.gather(*(goes(world, name) for name in fates))

            async def is_released() -> bool:
                return not api.of_namespace(world.namespace_id)

            assert await eventually(is_released, 60)
            await emptied(world)
    finally:
        api.stop()
    assert len(fates) >= ENOUGH
    tried(len(fates))
