"""MetalLB's IPAddressPool of each zone: derived from what live Services list, beside what others put there.

Writes for one zone go one after another, and whoever waits meanwhile is served by the next one: thirty
Services at once cost a few writes. Each is conditional on what was read, and read again if that changed. A
pool that somebody else made is never deleted, nor its last entry taken (MetalLB refuses an empty pool).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

from berth.control.mirror import Kept, Watched
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.crowd import Crowd
from berth.dialects.vitistack.wish import host
from berth.errors import AlreadyExists, Conflict, InvalidText, NotFound
from berth.kube import meta
from berth.kube.client import Client
from berth.net import Address, Range, parse_range

Object = dict[str, Any]
TRIES = 10
GATHER_SECONDS = 0.1  # where many come or go at once: a pool of a thousand entries is dear to write
OURS = "berth"


def watched(namespace: str) -> Watched:
    return Watched((kinds.POOL,), optional=True, namespace=namespace)


class Pools:
    def __init__(self, client: Client, kept: Kept | None, namespace: str, crowd: Crowd) -> None:
        self._client = client
        self._crowd = crowd
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
                await self._crowd.gather(GATHER_SECONDS)
                wanted = self._wanted.pop(zone, set())
                if still := self.missing(zone, wanted | missing):
                    await self._change(zone, lambda entries: _with(entries, still))
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
        texts = {host(address) for address in gone}
        await self._change(
            zone, lambda entries: [text for text in entries if text not in texts and not _is_any(text, gone)]
        )
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
            coverage = Coverage(_entries(pool))
            self._coverage[zone] = (pool, coverage)
        return {address for address in addresses if address not in coverage}

    def elsewhere(self, zone: str, address: Address) -> str:
        """The pool of another name that covers it: MetalLB refuses pools that overlap."""
        for pool in self._kept.cache if self._kept is not None else ():
            if pool["metadata"]["name"] != zone and address in Coverage(_entries(pool)):
                return str(pool["metadata"]["name"])
        return ""

    def _lock(self, zone: str) -> asyncio.Lock:
        return self._locks.setdefault(zone, asyncio.Lock())

    async def _change(self, zone: str, change: Callable[[list[str]], list[str]]) -> None:
        assert self._kept is not None
        pool = self._kept.cache.get(self._namespace, zone)
        for _ in range(TRIES):
            with suppress(Conflict, AlreadyExists, NotFound):
                await self._change_once(zone, pool, change)
                return
            pool = await self._find(zone)
        await self._change_once(zone, pool, change)

    async def _find(self, zone: str) -> Object | None:
        try:
            return await self._client.get(kinds.POOL, zone, self._namespace)
        except NotFound:
            return None

    async def _change_once(
        self, zone: str, pool: Object | None, change: Callable[[list[str]], list[str]]
    ) -> None:
        before = _entries(pool) if pool is not None else []
        after = change(before)
        if after == before:
            return
        if pool is None:
            self._observe(await self._client.create(kinds.POOL, self._fresh(zone, after)))
        elif after:
            body = {
                "metadata": {"resourceVersion": meta.resource_version(pool)},
                "spec": {"addresses": after},
            }
            self._observe(await self._client.patch(kinds.POOL, zone, body, self._namespace))
        elif meta.annotations(pool).get(kinds.MADE_BY) == OURS:
            await self._delete(zone, pool)

    async def _delete(self, zone: str, pool: Object) -> None:
        version = meta.resource_version(pool)
        await self._client.delete(kinds.POOL, zone, self._namespace, resource_version=version)
        assert self._kept is not None
        self._kept.cache.bury(pool)

    def _observe(self, pool: Object) -> None:
        assert self._kept is not None
        self._kept.cache.observe(pool)

    def _fresh(self, zone: str, entries: list[str]) -> Object:
        return {
            "apiVersion": kinds.POOL.api_version,
            "kind": kinds.POOL.kind,
            "metadata": {
                "name": zone,
                "namespace": self._namespace,
                "annotations": {kinds.MADE_BY: OURS},
            },
            "spec": {"addresses": entries, "autoAssign": False, "avoidBuggyIPs": False},
        }


def _entries(pool: Object) -> list[str]:
    return list((pool.get("spec") or {}).get("addresses") or [])


class Coverage:
    """What a pool's entries cover. A pool lists an entry per Service, and each Service asks."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._texts = frozenset(entries)
        # A single IPv4 address has one spelling, so only other entries are worth parsing.
        self._ranges = [found for text in self._texts if text[-3:] != "/32" and (found := _range(text))]

    def __contains__(self, address: Address) -> bool:
        if host(address) in self._texts:
            return True
        return any(one.family is address.family and one.contains(address.value) for one in self._ranges)


def _with(entries: list[str], addresses: Iterable[Address]) -> list[str]:
    coverage = Coverage(entries)
    new = sorted((one for one in addresses if one not in coverage), key=_order)
    return [*entries, *(host(one) for one in new)]


def _order(address: Address) -> tuple[int, int]:
    return int(address.family), address.value


@lru_cache(maxsize=16384)
def _range(entry: str) -> Range | None:
    try:
        return parse_range(entry.replace(" ", ""))
    except InvalidText:
        return None


def _is_any(entry: str, addresses: set[Address]) -> bool:
    """An entry for one of them, however it is written; a wider range is the administrator's."""
    if entry[-3:] == "/32":
        return False  # has one spelling
    found = _range(entry)
    if found is None or found.first != found.last:
        return False
    return Address(found.family, found.first) in addresses
