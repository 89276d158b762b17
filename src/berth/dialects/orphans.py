"""Collects what nobody owns: leases whose claim is gone for good, because somebody took our finalizer away.

A mistake here would hand a used address to someone else. So memory only raises a suspicion; a lease is given
back after two sightings with a grace between them, and a live read of whoever had it. Where a pool seems to
have lost many at once, more than ten and more than a twentieth, something else is wrong: nothing of it is
collected, an Event says so, and a person agrees with a word that stands for just those:

    kubectl annotate POOL berth.dev/release-orphans=WORD

A dialect gives `suspects`, `is_alive` and `collect`. kubipam, whose leases are ranges on one page, sweeps by
itself with the same sightings, brake and word; vitistack releases by its records and has the brake and word.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from berth import log
from berth.errors import KubeError
from berth.kube import meta

Object = dict[str, Any]
RELEASE_ORPHANS = "berth.dev/release-orphans"  # on a pool
_log = log.get("berth.orphans")


class Members(Protocol):
    """A set: of UIDs, or of addresses."""

    def __and__(self, other: Self) -> Self: ...
    def __or__(self, other: Self) -> Self: ...
    def __sub__(self, other: Self) -> Self: ...


M = TypeVar("M", bound=Members)


class Sightings(Generic[M]):
    """What has been nobody's, and since when."""

    def __init__(self, nothing: M) -> None:
        self._nothing = nothing
        self._seen: list[tuple[float, M]] = []

    def add(self, nobodys: M, now: float) -> None:
        """What was seen before and still is keeps its time; the rest is new."""
        still = [(at, members & nobodys) for at, members in self._seen]
        for _, members in still:
            nobodys = nobodys - members
        self._seen = [(at, members) for at, members in (*still, (now, nobodys)) if members]

    def older_than(self, limit: float) -> M:
        found = self._nothing
        for at, members in self._seen:
            found = found | members if at <= limit else found
        return found


@dataclass(frozen=True, slots=True)
class Brake:
    """So many at once are rather our mistake, or a restored backup, than litter."""

    count: int = 10
    share: float = 0.05  # of all there are, or `count`, whichever is more

    def holds(self, found: int, of: int) -> bool:
        return found > max(self.count, self.share * of)


def word_for(names: Iterable[str]) -> str:
    """Names just this set, so that nobody agrees to more than was reported."""
    return hashlib.blake2b("\n".join(sorted(names)).encode(), digest_size=6).hexdigest()


def is_agreed(pool: Object | None, word: str) -> bool:
    return pool is not None and meta.annotations(pool).get(RELEASE_ORPHANS) == word


def consent(pool: str, word: str) -> str:
    """What a person types; `pool` as kubectl names it."""
    return f"if they may go: kubectl annotate --overwrite {pool} {RELEASE_ORPHANS}={word}"


@dataclass(frozen=True, slots=True)
class Pace:
    every_seconds: float = 60.0
    grace_seconds: float = 600.0
    brake: Brake = field(default_factory=Brake)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A lease that seems to be nobody's, and its pool."""

    record: Object
    pool: str

    @property
    def uid(self) -> str:
        return meta.uid(self.record)


S = TypeVar("S", bound=Suspect)


class Orphans(Protocol[S]):
    """What a dialect knows of its leases."""

    def suspects(self) -> AsyncIterator[S]:
        """From memory, so that a sweep over healthy pools costs no request."""
        ...

    def count(self, pool: str) -> int:
        """How many leases the pool has."""
        ...

    def count_all(self) -> int | None:
        """How many there are in all pools; None: it does not matter how many go at once over all pools."""
        ...

    def pool(self, name: str) -> Object | None:
        """Where a person's word is looked for."""
        ...

    async def is_alive(self, suspect: S) -> bool:
        """By live reads: somebody has it after all."""
        ...

    async def collect(self, suspect: S) -> bool:
        """Give this very lease back; False if it is another's by now."""
        ...

    def held_back(self, pool: str, suspects: list[S], word: str) -> None:
        """Tell that so many are left for a person."""
        ...


class Collector(Generic[S]):
    def __init__(self, orphans: Orphans[S], pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        self._orphans = orphans
        self._pace = pace
        self._clock = clock
        self._sightings: Sightings[frozenset[str]] = Sightings(frozenset())
        self._swept_at = float("-inf")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._pace.every_seconds)
            try:
                await self.sweep()
            except KubeError as error:
                _log.warning("sweep cut short", error=str(error))

    async def sweep(self) -> int:
        """One look at everything; how many leases were given back."""
        suspects = [one async for one in self._orphans.suspects()]
        before, self._swept_at = self._swept_at, self._clock()
        self._sightings.add(frozenset(one.uid for one in suspects), self._swept_at)
        due = self._sightings.older_than(min(before, self._swept_at - self._pace.grace_seconds))
        held = self._held_back([one for one in suspects if not meta.is_deleting(one.record)], due)
        collected = 0
        for one in suspects:
            # Where somebody asked for deletion and our finalizer alone holds it, that is a person's word.
            if not meta.is_deleting(one.record) and (one.uid not in due or one.pool in held):
                continue
            try:
                collected += not await self._orphans.is_alive(one) and await self._orphans.collect(one)
            except KubeError as error:  # the others' turn does not wait for this one
                _log.warning("not collected", name=one.record["metadata"]["name"], error=str(error))
        return collected

    def _held_back(self, suspects: list[S], due: frozenset[str]) -> set[str]:
        """The pools of which too many would go, unless a person agreed to just these."""
        orphans, brake = self._orphans, self._pace.brake
        by_pool: dict[str, list[S]] = defaultdict(list)
        for one in suspects:
            by_pool[one.pool].append(one)
        words = {pool: word_for(one.uid for one in found) for pool, found in by_pool.items()}
        asked = [pool for pool, word in words.items() if not is_agreed(orphans.pool(pool), word)]
        there = orphans.count_all()
        everywhere = there is not None and brake.holds(sum(len(by_pool[pool]) for pool in asked), there)
        held = {pool for pool in asked if everywhere or brake.holds(len(by_pool[pool]), orphans.count(pool))}
        for pool in held:
            if any(one.uid in due for one in by_pool[pool]):
                orphans.held_back(pool, by_pool[pool], words[pool])
        return held
