"""MetalLB's IPAddressPool of each zone: derived from what live Services list, beside what others put there.

Writes for one zone go one after another, and whoever waits meanwhile is served by the next one: thirty
Services at once cost a few writes. Each is conditional on what was read, and read again if that changed. A
pool that somebody else made is never deleted, nor its last entry taken (MetalLB refuses an empty pool).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from berth.control.batching import LoadGauge
from berth.control.informers import Informer, WatchSpec
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.entries import Coverage, Entries, texts
from berth.errors import AlreadyExists, Conflict, NotFound
from berth.kube import meta
from berth.net import Address

Object = dict[str, Any]
Change = Callable[[Entries], Entries]
TRIES = 10
GATHER_SECONDS = 0.1  # where many come or go at once
OURS = "berth"


def watched(namespace: str) -> WatchSpec:
    return WatchSpec((kinds.POOL,), optional=True, namespace=namespace)


class MetalLbPools:
    def __init__(self, kept: Informer | None, namespace: str, load: LoadGauge) -> None:
        self._load = load
        self._kept = kept  # None: there is no MetalLB here
        self._namespace = namespace
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, set[Address]] = {}
        self._leaving: dict[str, dict[Address, Callable[[], bool]]] = {}
        self._coverage: dict[str, tuple[Object, Coverage]] = {}  # of the pool as it was last looked at

    async def add(self, zone: str, addresses: Iterable[Address]) -> None:
        """Returns when the zone's pool covers them all."""
        missing = self.missing(zone, addresses)
        if not missing:
            return
        self._wanted.setdefault(zone, set()).update(missing)
        try:
            async with self._lock(zone):
                if not self.missing(zone, missing):
                    return  # whoever held the lock before us has written ours with theirs
                await self._load.gather(GATHER_SECONDS)
                wanted = self._wanted.pop(zone, set())
                if still := self.missing(zone, wanted | missing):
                    await self._change(zone, lambda entries: entries.plus(still))
        finally:
            # Whoever gives up waiting leaves no wish behind: nobody would take that entry away again.
            self._wanted.get(zone, set()).difference_update(missing)

    async def remove(self, zone: str, address: Address, is_needed: Callable[[], bool]) -> None:
        """Takes its entry away, together with those of others who wait; asked once more before that."""
        if self._kept is None:
            return
        leaving = self._leaving.setdefault(zone, {})
        leaving[address] = is_needed
        try:
            async with self._lock(zone):
                if address in leaving:
                    if len(leaving) > 1:
                        await asyncio.sleep(GATHER_SECONDS)
                    await self._take_away(zone, leaving)
        finally:
            leaving.pop(address, None)

    async def _take_away(self, zone: str, leaving: dict[Address, Callable[[], bool]]) -> None:
        gone = {address for address, is_needed in leaving.items() if not is_needed()}
        await self._change(zone, lambda entries: entries.minus(gone))
        for address in gone:
            leaving.pop(address, None)  # those who wait for it need not write

    def missing(self, zone: str, addresses: Iterable[Address]) -> set[Address]:
        if self._kept is None:
            return set()
        pool = self._kept.cache.get(self._namespace, zone)
        if pool is None:
            return set(addresses)
        seen, coverage = self._coverage.get(zone, (None, None))
        if coverage is None or seen is not pool:
            coverage = Coverage(texts(pool))
            self._coverage[zone] = (pool, coverage)
        return {address for address in addresses if address not in coverage}

    def elsewhere(self, zone: str, address: Address) -> str:
        """The pool of another name that covers it: MetalLB refuses pools that overlap."""
        for pool in self._kept.cache if self._kept is not None else ():
            if pool["metadata"]["name"] != zone and address in Coverage(texts(pool)):
                return str(pool["metadata"]["name"])
        return ""

    def _lock(self, zone: str) -> asyncio.Lock:
        return self._locks.setdefault(zone, asyncio.Lock())

    async def _change(self, zone: str, change: Change) -> None:
        assert self._kept is not None
        pool = self._kept.cache.get(self._namespace, zone)
        for _ in range(TRIES):
            with suppress(Conflict, AlreadyExists, NotFound):
                await self._change_once(zone, pool, change)
                return
            pool = await self._kept.fetch(self._namespace, zone)
        await self._change_once(zone, pool, change)

    async def _change_once(self, zone: str, pool: Object | None, change: Change) -> None:
        assert self._kept is not None
        before = Entries.of(pool) if pool is not None else Entries()
        after = change(before)
        if pool is not None and not after.texts and meta.annotations(pool).get(kinds.MADE_BY) != OURS:
            after = before.least()
        if after == before:
            return
        if pool is None:
            await self._kept.create(self._fresh(zone, after))
        elif after.texts:
            about: Object = {"resourceVersion": meta.resource_version(pool)}
            if after.annotation != meta.annotations(pool).get(kinds.MERGED):
                about["annotations"] = {kinds.MERGED: after.annotation}
            body = {"metadata": about, "spec": {"addresses": after.texts}}
            await self._kept.patch(pool, body)
        else:
            await self._kept.delete(pool)

    def _fresh(self, zone: str, entries: Entries) -> Object:
        merged = {kinds.MERGED: entries.annotation} if entries.annotation else {}
        about = {
            "name": zone,
            "namespace": self._namespace,
            "annotations": {kinds.MADE_BY: OURS, **merged},
        }
        return {
            "apiVersion": kinds.POOL.api_version,
            "kind": kinds.POOL.kind,
            "metadata": about,
            "spec": {"addresses": entries.texts, "autoAssign": False, "avoidBuggyIPs": False},
        }
