"""T02, T26: the operator killed before and after its steps; another one finishes, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.killing import API_PENDING, PENDING_SECONDS, Victim, settled, victim, wrong
from tests.support.operator import eventually
from tests.support.vitistack import Api, World, fresh, operating, prepared

from berth.devcluster import DevCluster
from berth.errors import KubeError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
Play = Callable[[World], Awaitable[None]]
KILLS = 25


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
    await world.secret("other", "my-other-password")
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


async def recover(cluster: DevCluster, world: World, running: Victim, play: Play) -> None:
    """Another operator in its place; the user asks again for what was refused. Then all of it goes."""
    async with operating(
        cluster,
        world.api,
        webhook_url=running.webhook_url,
        vitistack_pending_seconds=PENDING_SECONDS,
    ):
        await eventually(lambda: _plays(world, play), 60)
        where = f"killed {'after' if running.after else 'before'} step {running.at}: {running.names[-1:]}"
        assert not await settled(world), where
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
    await play(world)
    found = {one["metadata"]["name"] for one in await world.services()}
    return {"both", "kept"} <= found


@pytest.mark.parametrize("play", [come_and_go, rotate], ids=["T02", "T26"])
async def test_killed_at_every_step(
    cluster: DevCluster, bare: World, tmp_path: Path, play: Play, tried: Callable[[int], None]
) -> None:
    """T02, T26: what live Services list is theirs, with the secret they name; nothing is held for nobody."""
    steps = await steps_of(cluster, bare, tmp_path, play)
    killed = 0
    for at, after in points(steps):
        world = await prepared_world(bare)
        running = await killed_at(cluster, world, tmp_path, (at, after, play))
        killed += running.done
        await recover(cluster, world, running, play)
        if killed == KILLS:
            break
    tried(killed)
