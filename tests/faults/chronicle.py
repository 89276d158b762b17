"""Everything the API server stored while a row ran, revision by revision.

The auditor looks ten times a second and misses what lasted for less. Watches miss nothing: their events, of
all kinds in the order of their revisions, are played again at the end, and what must hold at any moment is
asked of every moment. Where a watch had a gap (the server was killed, and knows nothing older than its start)
nothing is asked for that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from tests.faults.stage import until
from tests.faults.trade import Market, Object, Shown, Snapshot, Trade, claim_kinds, snapshot_at

from berth.errors import Gone, KubeError
from berth.kube.resource import Resource

COMPLETE_SECONDS = 60.0
AGAIN_SECONDS = 0.1
STREAM_SECONDS = 300.0
World = dict[str, dict[str, Object]]  # kind → name → object


@dataclass(frozen=True, slots=True)
class Happening:
    revision: int
    kind: str
    object: Object
    gone: bool = False


@dataclass(slots=True)
class HistoryFeed:
    """The start, what happened since, and the times of which nothing is known."""

    trade: Trade
    start: Snapshot
    happenings: list[Happening] = field(default_factory=list)
    dark: list[tuple[int, int]] = field(default_factory=list)

    def in_order(self) -> list[Happening]:
        return sorted(self.happenings, key=lambda one: one.revision)

    def world_at(self, revision: int) -> World:
        world = _world(self.start)
        for one in self.in_order():
            if one.revision <= revision:
                _apply(world, one)
        return world

    def violations(self, market: Market) -> list[str]:
        """Of every moment at which something changed for those who use it."""
        judge = Market(self.trade, market.client, market.namespace)
        world, found = _world(self.start), dict[str, None]()
        for one in self.in_order():
            old = _apply(world, one)
            if self._matters(one, old) and not self._is_dark(one.revision):
                wrong = judge.wrong(_snapshot(world))
                found |= dict.fromkeys(f"at revision {one.revision}: {text}" for text in wrong)
        return list(found)

    def _matters(self, one: Happening, old: Object | None) -> bool:
        """A claim shows something else than before, or what records an address changed or went."""
        if one.kind not in claim_kinds(self.trade):
            return old is not None
        shown = self._shown(one.kind, one.object)
        if one.gone or shown is None or shown.going:
            return False
        return old is None or self._shown(one.kind, old) != shown

    def _shown(self, kind: str, claim: Object) -> Shown | None:
        alone = {resource.key: [claim] if resource.key == kind else [] for resource in self.trade.resources}
        return next(iter(self.trade.shown(alone)), None)

    def _is_dark(self, revision: int) -> bool:
        return any(first <= revision <= last for first, last in self.dark)


def _world(seen: Snapshot) -> World:
    return {kind: {one["metadata"]["name"]: one for one in objects} for kind, objects in seen.items()}


def _snapshot(world: World) -> Snapshot:
    return {kind: list(objects.values()) for kind, objects in world.items()}


def _apply(world: World, one: Happening) -> Object | None:
    """Returns what was there before."""
    objects, name = world[one.kind], one.object["metadata"]["name"]
    old = objects.pop(name, None)
    if not one.gone:
        objects[name] = one.object
    return old


def _versions(world: World) -> dict[str, set[tuple[str, str]]]:
    return {
        kind: {(name, one["metadata"]["resourceVersion"]) for name, one in objects.items()}
        for kind, objects in world.items()
    }


@asynccontextmanager
async def chronicled(market: Market) -> AsyncIterator[HistoryFeed]:
    """Complete when the block is left."""
    seen, revision = await snapshot_at(market.client, market.trade.resources, market.namespace)
    chronicle = HistoryFeed(market.trade, seen)
    writers = [
        asyncio.create_task(_Writer(chronicle, market, resource, revision).run())
        for resource in market.trade.resources
    ]
    try:
        yield chronicle
        await _complete(chronicle, market)
    finally:
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)


async def _complete(chronicle: HistoryFeed, market: Market) -> None:
    seen, revision = await snapshot_at(market.client, market.trade.resources, market.namespace)
    wanted = _versions(_world(seen))

    async def is_complete() -> bool:
        return _versions(chronicle.world_at(revision)) == wanted

    assert await until(is_complete, COMPLETE_SECONDS), "the watches never came to the end"


@dataclass(slots=True)
class _Writer:
    """Follows one kind."""

    chronicle: HistoryFeed
    market: Market
    resource: Resource
    version: int

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except Gone:
                await self._bridge()
            except KubeError:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _follow(self) -> None:
        stream = self.market.client.watch(
            self.resource,
            self.market.namespace if self.resource.namespaced else "",
            resource_version=str(self.version),
            timeout_seconds=STREAM_SECONDS,
        )
        async with aclosing(stream) as events:
            async for event in events:
                self.version = int(event.object["metadata"]["resourceVersion"])
                if event.type != "BOOKMARK":
                    self._note(event.object, gone=event.type == "DELETED")

    def _note(self, obj: Object, *, gone: bool) -> None:
        self.chronicle.happenings.append(Happening(self.version, self.resource.key, obj, gone))

    async def _bridge(self) -> None:
        """Over a gap: what is there now, and that nothing is known about the time in between."""
        try:
            seen, revision = await snapshot_at(self.market.client, (self.resource,), self.market.namespace)
        except KubeError:
            await asyncio.sleep(AGAIN_SECONDS)
            return
        self.chronicle.dark.append((self.version, revision))
        before, self.version = self.version, revision
        now = _world(seen)[self.resource.key]
        for name, obj in self.chronicle.world_at(before)[self.resource.key].items():
            if name not in now:
                self._note(obj, gone=True)
        for obj in now.values():
            self._note(obj, gone=False)
