"""Collects what no claim will ever release, slowly and with a brake.

An address object whose claim is gone should not exist: the claim's finalizer holds the claim until its
address is back. Upstream leaves some behind, and so does whoever removes finalizers by hand. Such an object
goes after two sightings, at least the grace period apart, and a live read that finds no claim. One made by
hand, for a claim that is still to come, has no owner and is never collected; one that an operator made is its
pool's too, which tells them apart when garbage collection has struck off the claim.

A mistake here would hand a used address to someone else. So if a pool seems to have lost many claims at
once, more than a twentieth and more than ten, nothing of it is collected and an Event asks for a look:
`kubectl delete ipaddress` on an object without a claim is a person's word that it may go.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from berth import log
from berth.control.events import Recorder
from berth.dialects.metal3.claim_api import made_for
from berth.dialects.metal3.claims import PoolClaimHandler
from berth.dialects.metal3.pools import Pools
from berth.errors import KubeError
from berth.kube import meta
from berth.kube.meta import Ref

Object = dict[str, Any]
_log = log.get("berth.metal3.janitor")
OBSTACLES_SECONDS = 5.0
AT_A_STRETCH = 500
BRAKE_SHARE = 0.05
BRAKE_COUNT = 10


@dataclass(frozen=True, slots=True)
class Pace:
    every_seconds: float = 60.0
    grace_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Suspect:
    book: PoolClaimHandler
    record: Object
    maker: str  # UID of the claim it was made for; empty for one made by hand

    @property
    def pool(self) -> str:
        return self.book.flavour.pool_of_address(self.record) or ""


class Janitor:
    def __init__(
        self,
        books: tuple[PoolClaimHandler, ...],
        pools: Pools,
        events: Recorder,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._books = books
        self._pools = pools
        self._events = events
        self._pace = pace
        self._clock = clock
        self._seen: dict[str, float] = {}  # suspects by UID, since when
        self._makers: dict[str, str] = {}  # owners that garbage collection struck off
        for book in books:
            book.leases.kept.cache.listen(self._listener(book))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._pace.every_seconds)
            try:
                await self.sweep()
            except KubeError as error:
                _log.warning("sweep cut short", error=str(error))

    async def watch_obstacles(self) -> None:
        """An object in our way may go before our watch has shown it; nobody would tell us of that."""
        while True:
            await asyncio.sleep(min(OBSTACLES_SECONDS, self._pace.every_seconds))
            for obstacle in self._pools.obstacles():
                known = obstacle.leases.kept.cache.get(obstacle.namespace, obstacle.name)
                try:
                    if (
                        known is None
                        and await obstacle.leases.find(obstacle.namespace, obstacle.name) is None
                    ):
                        self._pools.cleared(obstacle.key)
                except KubeError as error:
                    _log.debug("obstacle not looked at", error=str(error))

    async def sweep(self) -> None:
        by_pool: dict[str, list[Suspect]] = defaultdict(list)
        async for suspect in self._suspects():
            by_pool[suspect.pool].append(suspect)
        due = self._due([suspect for suspects in by_pool.values() for suspect in suspects])
        for pool, suspects in by_pool.items():
            told = [suspect for suspect in suspects if meta.is_deleting(suspect.record)]
            unasked = [suspect for suspect in suspects if not meta.is_deleting(suspect.record)]
            if len(unasked) > max(BRAKE_COUNT, BRAKE_SHARE * self._pools.count(pool)):
                self._brake(pool, unasked)
                unasked = []
            for suspect in (*told, *(one for one in unasked if meta.uid(one.record) in due)):
                try:
                    await self._collect(suspect)
                except KubeError as error:  # the others' turn does not wait for this one
                    _log.warning(
                        "not collected", address=suspect.record["metadata"]["name"], error=str(error)
                    )

    async def _suspects(self) -> AsyncIterator[Suspect]:
        """From memory, so that a sweep over healthy pools costs no request."""
        for book in self._books:
            for count, record in enumerate(book.leases.kept.cache):
                if count % AT_A_STRETCH == 0:
                    await asyncio.sleep(0)  # claims do not wait for us
                maker = made_for(book.flavour, record) or self._makers.get(meta.uid(record), "")
                told = bool(maker) or meta.is_deleting(record) or _was_made_by_an_operator(book, record)
                if told and not book.returns.seems_used(record, maker):
                    yield Suspect(book, record, maker)

    def _due(self, suspects: list[Suspect]) -> set[str]:
        """UIDs of those that were seen before, long enough ago."""
        now = self._clock()
        uids = [meta.uid(suspect.record) for suspect in suspects]
        self._seen = {uid: self._seen.get(uid, now) for uid in uids}
        return {uid for uid, since in self._seen.items() if since < now - self._pace.grace_seconds}

    async def _collect(self, suspect: Suspect) -> None:
        book, record = suspect.book, suspect.record
        if await book.returns.lives(record, suspect.maker):
            return
        await book.leases.collect(record)
        _log.info(
            "collected an address without a claim", address=record["metadata"]["name"], pool=suspect.pool
        )
        text = f"{record['spec']['address']} had lost its claim; it is available again"
        self._events.event(_pool_ref(suspect.pool), "Normal", "AddressCollected", text)

    def _brake(self, pool: str, suspects: list[Suspect]) -> None:
        names = ", ".join(suspect.record["metadata"]["name"] for suspect in suspects[:5])
        text = (
            f"{len(suspects)} addresses seem to have lost their claims ({names}, …); so many are not "
            "collected unasked: look, and delete those IPAddresses that may go"
        )
        _log.warning("many addresses without a claim, none collected", pool=pool, count=len(suspects))
        self._events.event(_pool_ref(pool), "Warning", "TooManyWithoutClaim", text)

    def _listener(self, book: PoolClaimHandler) -> Callable[[Object | None, Object | None], None]:
        """Garbage collection strikes a dead claim off the owners, and with it what tells whose it was."""

        def changed(old: Object | None, new: Object | None) -> None:
            if old is None:
                return
            if new is None:
                self._makers.pop(meta.uid(old), None)
            elif (maker := made_for(book.flavour, old)) and not made_for(book.flavour, new):
                self._makers[meta.uid(new)] = maker

        return changed


def _was_made_by_an_operator(book: PoolClaimHandler, record: Object) -> bool:
    is_held = meta.has_finalizer(record, book.flavour.address_finalizer)
    return is_held and any(owner.get("kind") == "IPPool" for owner in meta.owners(record))


def _pool_ref(key: str) -> Ref:
    namespace, _, name = key.partition("/")
    return Ref("IPPool", namespace, name)
