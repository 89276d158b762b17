"""T02, T26: the operator killed before and after its steps; another one finishes, and nothing is lost."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import orjson
import pytest
import pytest_asyncio
from tests.support.killing import API_PENDING, PENDING_SECONDS, Victim, settled, victim, wrong
from tests.support.operator import eventually
from tests.support.vitistack import SYSTEM, VALUE, Api, World, address_of, fresh, of, operating, prepared

from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.errors import KubeError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
Play = Callable[[World], Awaitable[None]]
KILLS = 25
OTHER = "my-other-password"
ROTATED = {"both": "my-secret", "kept": "other"}


@pytest_asyncio.fixture(loop_scope="session")
async def bare(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[World]:
    api = Api(tmp_path, API_PENDING)
    async with prepared(cluster) as client:
        api.start()
        yield World(client, api, "")
        api.stop()


async def as_far_as_it_goes(*doing: Awaitable[object]) -> None:
    """Refused is fine while the operator is dead; whoever asked asks again later."""
    for one in asyncio.as_completed(doing):
        with suppress(KubeError):
            await one


async def come_and_go(world: World) -> None:
    """Three come at once, one of them dual and one with retention; one changes its terms, one goes."""
    await as_far_as_it_goes(
        world.create("plain"),
        world.create("both", annotations={"ip-family": "dual"}),
        world.create("kept", annotations={"secret": "my-secret", "retention-period-days": "1"}),
    )
    await as_far_as_it_goes(world.annotate("both", retention_period_days="2"), world.delete("plain"))


async def rotate(world: World) -> None:
    """One dual, one with a secret of its own: each gets another secret."""
    await as_far_as_it_goes(
        world.create("both", annotations={"ip-family": "dual"}),
        world.create("kept", annotations={"secret": "my-secret"}),
    )
    await as_far_as_it_goes(
        world.annotate("both", secret="my-secret"), world.annotate("kept", secret="other")
    )


async def steps_of(cluster: DevCluster, bare: World, home: Path, play: Play) -> int:
    """How many there are in an undisturbed run."""
    world = await prepared_world(bare)
    async with victim(cluster, world, home) as running:
        running.arm(0, after=False)
        await play(world)
        assert not await settled(world)
        assert running.steps >= 8, running.names
        return running.steps


async def prepared_world(bare: World) -> World:
    world = await fresh(bare)
    await world.secret()
    await world.secret("other", OTHER)
    return world


def points(steps: int) -> Iterator[tuple[int, bool]]:
    """Spread over all steps, before and after in turn; then again, as not every run has them all."""
    for number in count():
        yield 1 + number * steps // KILLS % steps, number % 2 == 1


async def killed_at(cluster: DevCluster, world: World, home: Path, what: tuple[int, bool, Play]) -> Victim:
    at, after, play = what
    async with victim(cluster, world, home) as running:
        running.arm(at, after=after)
        await play(world)
        await eventually(lambda: _is_over(world, running), 60)
        return running


async def listed(world: World) -> list[tuple[str, str, str]]:
    """Of each live Service its name, each address, and the value of the Secret that it names."""
    values = {"my-secret": VALUE, "other": OTHER, "default": await world.default_secret()}
    return [
        (one["metadata"]["name"], address, values[of(one, "secret")])
        for one in await world.services()
        for address in address_of(one).split(",")
        if address
    ]


async def shut(world: World) -> list[str]:
    """Addresses that the Secret their Service names does not open."""
    found = await listed(world)
    return [
        f"{name} {address}" for name, address, value in found if not await world.opens(address, value, name)
    ]


async def lost(world: World) -> list[str]:
    """Addresses that nothing opens which the next operator finds: the default secret, or the copies kept."""
    secrets = (await world.client.list(kinds.SECRET, SYSTEM)).items
    texts = {one["metadata"]["name"]: [*(one.get("data") or {}).values()] for one in secrets}
    mine = [one for one in await world.records() if one["data"]["namespace"] == world.namespace]
    copies = {(one["data"]["service"], one["data"]["address"]): one["metadata"]["name"] for one in mine}

    async def is_opened(name: str, address: str) -> bool:
        kept = texts["default"] + texts.get(copies[name, address.partition("/")[0]], [])
        values = {base64.b64decode(text).decode() for text in kept}
        return any([await world.opens(address, value, name) for value in values])

    return [
        f"{name} {address}" for name, address, _ in await listed(world) if not await is_opened(name, address)
    ]


async def grow_old(world: World) -> None:
    """As if the time in which an update under way may still be stored had passed: all were answered."""
    past = f"{time.time() - 1:.0f}"
    for one in (await world.client.list(kinds.CONFIG_MAP, SYSTEM, label_selector=kinds.RECORD_LABEL)).items:
        data = {name: orjson.loads(text) for name, text in (one.get("data") or {}).items()}
        older = {name: {**record, "until": past} for name, record in data.items() if record["until"] != "0"}
        texts = {name: orjson.dumps(record).decode() for name, record in older.items()}
        await world.client.patch(kinds.CONFIG_MAP, one["metadata"]["name"], {"data": texts}, SYSTEM)


async def is_open(world: World) -> bool:
    assert not await shut(world)
    return True


async def recover(cluster: DevCluster, world: World, running: Victim, play: Play, *, heals: bool) -> None:
    """Another operator in its place, which may have to finish by itself what is half done (`heals`); the user
    asks again for what was refused. Then all of it goes.
    """
    where = f"killed {'after' if running.after else 'before'} step {running.at}: {running.names[-1:]}"
    assert not await lost(world), where
    if heals:
        await grow_old(world)
    async with operating(
        cluster,
        world.api,
        webhook_url=running.webhook_url,
        vitistack_pending_seconds=PENDING_SECONDS,
    ):
        if heals:
            assert await eventually(lambda: is_open(world), 60), where
        await eventually(lambda: _plays(world, play), 60, every=0.2)
        assert not await settled(world), where
        assert await eventually(lambda: is_open(world), 60), where  # a replacement waits out the dead one
        for name in ("plain", "both", "kept"):
            with suppress(KubeError):
                await world.annotate(name, retention_period_days="0")
                await world.delete(name)

        async def is_empty() -> bool:
            return not world.api.of_namespace(world.namespace_id)

        assert await eventually(is_empty, 60), where


async def _is_over(world: World, running: Victim) -> bool:
    return running.done or not await wrong(world)


async def _plays(world: World, play: Play) -> bool:
    """Until all of it is admitted: as long as the dead one may still speak, a rotation is refused."""
    await play(world)
    found = {one["metadata"]["name"]: of(one, "secret") for one in await world.services()}
    return ROTATED.items() <= found.items() if play is rotate else ROTATED.keys() <= found.keys()


@pytest.mark.parametrize("play", [come_and_go, rotate], ids=["T02", "T26"])
async def test_killed_at_every_step(
    cluster: DevCluster, bare: World, tmp_path: Path, play: Play, tried: Callable[[int], None]
) -> None:
    """T02, T26: what live Services list is theirs, with the secret they name; nothing is held for nobody."""
    steps = await steps_of(cluster, bare, tmp_path, play)
    killed = half_done = 0
    for at, after in points(steps):
        world = await prepared_world(bare)
        running = await killed_at(cluster, world, tmp_path, (at, after, play))
        killed += running.done
        half_done += bool(await shut(world))
        # The first that is half done is finished by the operator, the second by who asks again, and so on.
        await recover(cluster, world, running, play, heals=play is rotate and half_done % 2 == 1)
        if killed == KILLS:
            break
    assert half_done or play is not rotate, "no kill left an address with another secret than its Service's"
    tried(killed)
