"""Finds what is taken and nobody's, and gives it back: after two sightings, by live reads, with a brake.

The ledger leaves nothing behind when an operator is killed: a pending grant is delivered by the next one.
What is left are requests that went without us, their finalizer taken off by hand, and what people wrote into
a status. A sweep costs nothing while everything in memory has a holder.

    suspicious in memory? ──► page, then all requests, read from the server ──► seen as nobody's a first time
                              … at least 90 s later, the same again ──► off the page, unless it is too much
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from berth import log
from berth.control.event_queue import Type
from berth.control.events import Recorder
from berth.dialects.kubipam import kinds
from berth.dialects.kubipam.allocations import Draft, Page
from berth.dialects.kubipam.leases import Stale
from berth.dialects.kubipam.ranges import OpenRange, Ranges, Sources
from berth.dialects.kubipam.requests import holders
from berth.dialects.orphans import Brake, Sightings, consent, is_agreed, word_for
from berth.errors import KubeError
from berth.kube import meta
from berth.leasing.space import UNKNOWN_HOLDER
from berth.net import RangeSet

Object = dict[str, Any]
_log = log.get("berth.kubipam.audit")


@dataclass(frozen=True, slots=True)
class AuditSettings:
    every_seconds: float = 30.0
    grace_seconds: float = 90.0
    keep_seconds: float = 3600.0  # for requests that a backup has yet to bring back
    wake_seconds: float = 120.0  # at the latest a waiting request looks again, whatever was missed
    brake: Brake = field(default_factory=Brake)
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Findings:
    """What the page and the requests, read after it, do not agree on."""

    nobodys: RangeSet
    missing: RangeSet  # in use and not on the page
    stale: frozenset[str]  # entries whose request is gone
    come: RangeSet  # kept for those who would come back, and in use


def compare(page: Page, key: str, requests: Iterable[Object]) -> Findings:
    """Pure. The requests must have been read after the page."""
    found = list(requests)
    alive = {meta.uid(request) for request in found}
    in_use = RangeSet(b.range for uid, b in holders(found, key) if uid not in page.released)
    pending = RangeSet(block.range for uid, block in page.pending.items() if uid in alive)
    nobodys = page.taken.minus(in_use.union(pending).union(page.kept))
    stale = frozenset(uid for uid in (*page.pending, *page.released) if uid not in alive)
    return Findings(nobodys, in_use - page.taken, stale, page.kept & in_use)


class Audit:
    def __init__(self, sources: Sources, ranges: Ranges, warnings: Recorder, settings: AuditSettings) -> None:
        self._sources = sources
        self._ranges = ranges
        self._warnings = warnings
        self._settings = settings
        self._sightings: dict[str, Sightings[RangeSet]] = {}  # by the range's UID
        self._kept: dict[str, Sightings[RangeSet]] = {}  # the same of what waits for a backup's requests
        self._braked: dict[str, RangeSet] = {}  # what was already told, by the range's UID

    async def run(self) -> None:
        woken_at = self._settings.clock()
        while True:
            await asyncio.sleep(self._settings.every_seconds)
            await self.sweep()
            if self._settings.clock() - woken_at >= self._settings.wake_seconds:
                woken_at = self._settings.clock()
                for opened in self._ranges:
                    opened.desk.wake_all()

    async def sweep(self) -> None:
        there = {opened.uid for opened in self._ranges}
        self._sightings = {uid: seen for uid, seen in self._sightings.items() if uid in there}
        self._kept = {uid: seen for uid, seen in self._kept.items() if uid in there}
        self._braked = {uid: told for uid, told in self._braked.items() if uid in there}
        for opened in self._ranges:
            try:
                await self._look_at(opened)
            except Stale:
                continue  # it was written meanwhile; the next sweep looks again
            except KubeError as error:
                _log.warning("audit put off", range=opened.key, error=str(error))

    async def _look_at(self, opened: OpenRange) -> None:
        page, version = opened.ledger.page, opened.ledger.version
        if page is None or not self._is_suspicious(opened, page):
            self._sightings.pop(opened.uid, None)
            self._kept.pop(opened.uid, None)
            return
        # Always of all namespaces: what an operator of one namespace cannot see is not nobody's.
        found = compare(page, opened.key, (await self._sources.client.list(kinds.REQUEST)).items)
        settings = self._settings
        ripe = _ripe(self._sightings, opened, found.nobodys, settings.clock(), settings.grace_seconds)
        if self._is_too_much(opened, ripe):
            ripe = RangeSet()
        # Nobody came for it: it was known whose it was, so the brake is not asked.
        kept = page.kept.minus(found.come)
        ripe = ripe.union(_ripe(self._kept, opened, kept, settings.clock(), settings.keep_seconds))
        if ripe or found.missing or found.stale or found.come:
            await opened.ledger.change(lambda draft: _mend(draft, found, ripe), version)
        if ripe:
            _log.warning("gave back what was nobody's", range=opened.key, ranges=", ".join(map(str, ripe)))
            self._tell(opened, "Normal", "release", ", ".join(f"{item} released" for item in ripe))
        opened.recount()  # what only memory holds for one who is gone is free

    def _is_suspicious(self, opened: OpenRange, page: Page) -> bool:
        requests = self._sources.requests
        if page.kept:
            return True
        if opened.desk.space.leases_of(UNKNOWN_HOLDER):
            return True
        if any(requests.find(uid) is None for uid in (*page.pending, *page.released)):
            return True
        return any(
            requests.find(uid) is None or not page.holds(block)
            for block, uid in opened.desk.space.leases()
            if not opened.is_unwritten(uid)
        )

    def _is_too_much(self, opened: OpenRange, ripe: RangeSet) -> bool:
        """The brake: so much at once is rather our mistake, or a restored backup, than litter."""
        blocks = sum(1 for _ in ripe.blocks())
        leases = sum(1 for _ in opened.desk.space.leases())
        word = word_for(map(str, ripe))
        if not self._settings.brake.holds(blocks, leases) or is_agreed(self._ranges.object(opened.key), word):
            self._braked.pop(opened.uid, None)
            return False
        if self._braked.get(opened.uid) != ripe:
            self._braked[opened.uid] = ripe
            namespace, name = opened.key.split("/", 1)
            text = f"{blocks} blocks are taken and nobody's: too many to give back unasked; see status.taken"
            _log.error("audit stopped by its brake", range=opened.key, blocks=blocks, word=word)
            self._tell(opened, "Warning", "audit", text)
            agree = consent(f"-n {namespace} ipamrange {name}", word)
            self._tell(opened, "Warning", "TooManyOrphans", agree)
        return True

    def _tell(self, opened: OpenRange, type: Type, reason: str, message: str) -> None:
        obj = self._ranges.object(opened.key)
        if obj is not None:
            self._warnings.event(obj, type, reason, message)


def _ripe(
    seen: dict[str, Sightings[RangeSet]], opened: OpenRange, now: RangeSet, at: float, grace: float
) -> RangeSet:
    """What was already seen long enough ago, and still is."""
    sightings = seen.setdefault(opened.uid, Sightings(RangeSet()))
    sightings.add(now, at)
    return sightings.older_than(at - grace)


def _mend(draft: Draft, found: Findings, ripe: RangeSet) -> None:
    if found.missing:
        draft.adopt(found.missing)
    draft.keep_no_more(found.come)
    draft.give_back(ripe)
    for uid in found.stale:
        draft.pending.pop(uid, None)  # its block stays taken until it is ripe
        draft.released.discard(uid)
