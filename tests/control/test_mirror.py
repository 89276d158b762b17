"""The mirror: no decision before every cache is filled, and what a kind that is not installed means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.kube.scripted import Line, Server, answer, cut, refusal, scripted
from tests.kube.waiting import eventually

from berth.control.informers import Informers, WatchSpec, first_served
from berth.kube.client import Client
from berth.kube.resource import Resource

BOXES = Resource("boxes.test", "v1", "Box", "boxes")
OLD_BOXES = Resource("boxes.test", "v1beta1", "Box", "boxes")
LIDS = Resource("lids.test", "v1", "Lid", "lids")


@dataclass
class World:
    """What the server serves: kinds by group and version, and the names of the objects of each plural."""

    server: Server
    client: Client
    served: dict[str, list[str]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    failing: bool = False
    lists_may_go: asyncio.Event = field(default_factory=asyncio.Event)
    streams_end: asyncio.Event = field(default_factory=asyncio.Event)
    mirror: Informers = field(init=False)

    def __post_init__(self) -> None:
        self.mirror = Informers(self.client, look_again_seconds=0.01)
        self.lists_may_go.set()

    async def reply(self, line: Line) -> None:
        path = self.server.asked[-1].path
        parts = path.partition("?")[0].split("/")[2:]
        if self.failing:
            await refusal(503)(line)
        elif len(parts) == 2:
            await self._discovery("/".join(parts), line)
        elif "/".join(parts[:2]) not in self.served:
            await refusal(404, "NotFound")(line)
        elif "watch=true" in path:
            await self.streams_end.wait()
            await cut()(line)
        else:
            await self.lists_may_go.wait()
            await answer(200, self._listing(parts[-1]))(line)

    async def _discovery(self, group_version: str, line: Line) -> None:
        if group_version not in self.served:
            await refusal(404, "NotFound")(line)
        else:
            resources = [{"name": plural} for plural in self.served[group_version]]
            await answer(200, {"resources": resources})(line)

    def _listing(self, plural: str) -> dict[str, Any]:
        items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in self.names.get(plural, [])]
        return {"metadata": {"resourceVersion": "5"}, "items": items}

    def withdraw(self, resource: Resource) -> None:
        """Served no longer: a CRD without this version."""
        del self.served[resource.api_version]
        self.streams_end.set()

    def serve(self, resource: Resource, *names: str) -> None:
        self.served.setdefault(resource.api_version, []).append(resource.plural)
        self.names[resource.plural] = list(names)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """The mirror at work; the task ends when the barrier opens."""
        work = asyncio.create_task(self.mirror.run())
        barrier = asyncio.create_task(self.mirror.filled())
        try:
            yield barrier
        finally:
            work.cancel()
            barrier.cancel()
            await asyncio.wait([work, barrier])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with scripted() as server, Client(server.credentials()) as client:
        world = World(server, client)
        server.script = [world.reply] * 10_000
        yield world


async def test_the_barrier_opens_when_the_last_list_is_complete(world: World) -> None:
    world.serve(BOXES, "a", "b")
    world.serve(LIDS)
    world.lists_may_go.clear()
    boxes, lids = (world.mirror.watch(WatchSpec((kind,))) for kind in (BOXES, LIDS))
    async with world.running() as barrier:
        await eventually(lambda: sum("limit" in asked.path for asked in world.server.asked) == 2)
        assert not barrier.done()
        assert not boxes.cache.filled
        world.lists_may_go.set()
        await asyncio.wait_for(barrier, 60)
        assert (len(boxes.cache), len(lids.cache), lids.cache.filled) == (2, 0, True)


async def test_a_kind_that_is_needed_is_waited_for_and_said_once(world: World) -> None:
    boxes = world.mirror.watch(WatchSpec((BOXES,)))
    with capture_logs() as lines:
        async with world.running() as barrier:
            await eventually(lambda: len(world.server.asked) > 5)
            assert not barrier.done()
            world.serve(BOXES, "a")
            await asyncio.wait_for(barrier, 60)
    assert [line["crd"] for line in lines if "waiting for a CRD" in line["event"]] == ["boxes.boxes.test"]
    assert len(boxes.cache) == 1


async def test_an_optional_kind_that_is_missing_counts_as_empty_until_it_appears(world: World) -> None:
    boxes = world.mirror.watch(WatchSpec((BOXES,), optional=True))
    async with world.running() as barrier:
        await asyncio.wait_for(barrier, 60)
        assert (boxes.resource, boxes.cache.filled, len(boxes.cache)) == (None, True, 0)
        world.serve(BOXES, "a")
        await eventually(lambda: len(boxes.cache) == 1)
        assert boxes.resource == BOXES


async def test_a_server_that_cannot_say_what_it_serves_is_no_empty_world(world: World) -> None:
    """An outage is not a missing kind: an optional one must not pass for empty because of it."""
    boxes = world.mirror.watch(WatchSpec((BOXES,), optional=True))
    world.failing = True
    async with world.running() as barrier:
        await eventually(lambda: len(world.server.asked) > 5)
        assert not barrier.done()
        assert not boxes.cache.filled
        world.serve(BOXES, "a")
        world.failing = False
        await asyncio.wait_for(barrier, 60)
        assert len(boxes.cache) == 1


async def test_the_first_version_that_is_served_is_used(world: World) -> None:
    world.serve(OLD_BOXES)
    assert await first_served(world.client, (BOXES, OLD_BOXES)) == OLD_BOXES
    world.serve(BOXES)
    assert await first_served(world.client, (BOXES, OLD_BOXES)) == BOXES
    assert await first_served(world.client, (LIDS,)) is None


async def test_another_version_takes_over_when_the_one_in_use_is_served_no_longer(world: World) -> None:
    """The objects keep their resource versions, but not their looks: none of the old ones may stay."""
    world.serve(OLD_BOXES, "a")
    boxes = world.mirror.watch(WatchSpec((BOXES, OLD_BOXES)))
    async with world.running() as barrier:
        await asyncio.wait_for(barrier, 60)
        assert [box["apiVersion"] for box in boxes.cache] == [OLD_BOXES.api_version]
        world.serve(BOXES, "a")
        world.withdraw(OLD_BOXES)
        await eventually(lambda: [box["apiVersion"] for box in boxes.cache] == [BOXES.api_version])
        assert boxes.resource == BOXES


async def test_a_kind_that_is_away_for_a_while_keeps_its_last_known_version(world: World) -> None:
    """A server that starts does not know its custom kinds yet: that is no word about their objects."""
    world.serve(BOXES, "a")
    boxes = world.mirror.watch(WatchSpec((BOXES,)))
    async with world.running() as barrier:
        await asyncio.wait_for(barrier, 60)
        world.withdraw(BOXES)
        asked = len(world.server.asked)
        await eventually(lambda: len(world.server.asked) > asked + 10)
        assert (boxes.resource, len(boxes.cache)) == (BOXES, 1)
        world.serve(BOXES, "a", "b")
        await eventually(lambda: len(boxes.cache) == 2)


async def test_a_kind_is_kept_once_however_often_it_is_asked_for(world: World) -> None:
    assert world.mirror.watch(WatchSpec((BOXES,))) is world.mirror.watch(WatchSpec((BOXES, OLD_BOXES)))


@pytest.mark.parametrize(
    ("watched", "path"),
    [
        (WatchSpec((BOXES,)), "/apis/boxes.test/v1/namespaces/mine/boxes"),
        (WatchSpec((BOXES,), namespace="theirs"), "/apis/boxes.test/v1/namespaces/theirs/boxes"),
        (
            WatchSpec((Resource("boxes.test", "v1", "Box", "boxes", namespaced=False),)),
            "/apis/boxes.test/v1/boxes",
        ),
    ],
)
async def test_only_the_namespace_asked_for_is_listed(world: World, watched: WatchSpec, path: str) -> None:
    world.serve(BOXES)
    world.mirror = Informers(world.client, "mine", look_again_seconds=0.01)
    world.mirror.watch(watched)
    async with world.running() as barrier:
        await asyncio.wait_for(barrier, 60)
    assert path in [asked.path.partition("?")[0] for asked in world.server.asked]
