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

from berth.control.mirror import Kept, Watched
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.wish import host
from berth.errors import AlreadyExists, Conflict, InvalidText, NotFound
from berth.kube import meta
from berth.kube.client import Client
from berth.net import Address, parse_range

Object = dict[str, Any]
TRIES = 10
OURS = "berth"


def watched(namespace: str) -> Watched:
    return Watched((kinds.POOL,), optional=True, namespace=namespace)


class Pools:
    def __init__(self, client: Client, kept: Kept | None, namespace: str) -> None:
        self._client = client
        self._kept = kept  # None: there is no MetalLB here
        self._namespace = namespace
        self._locks: dict[str, asyncio.Lock] = {}
        self._wanted: dict[str, set[Address]] = {}

    async def add(self, zone: str, addresses: Iterable[Address]) -> None:
        """Returns when the zone's pool covers them all."""
        missing = self.missing(zone, addresses)
        if not missing:
            return
        self._wanted.setdefault(zone, set()).update(missing)
        async with self._lock(zone):
            wanted = self._wanted.pop(zone, set())
            # Whoever held the lock before us may have written ours with theirs.
            if still := self.missing(zone, wanted | missing):
                await self._change(zone, lambda entries: _with(entries, still))

    async def remove(self, zone: str, address: Address) -> None:
        if self._kept is not None:
            async with self._lock(zone):
                await self._change(zone, lambda entries: [text for text in entries if not _is(text, address)])

    def missing(self, zone: str, addresses: Iterable[Address]) -> set[Address]:
        if self._kept is None:
            return set()
        pool = self._kept.cache.get(self._namespace, zone)
        entries = _entries(pool) if pool is not None else []
        return {address for address in addresses if not _covered(entries, address)}

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


def _with(entries: list[str], addresses: Iterable[Address]) -> list[str]:
    new = sorted((one for one in addresses if not _covered(entries, one)), key=_order)
    return [*entries, *(host(one) for one in new)]


def _order(address: Address) -> tuple[int, int]:
    return int(address.family), address.value


def _covered(entries: Iterable[str], address: Address) -> bool:
    """By an entry of its own or a range of the administrator's."""
    text = host(address)
    # Most entries are single IPv4 addresses, which have one spelling: only others are worth parsing.
    return any(entry == text or (entry[-3:] != "/32" and _contains(entry, address)) for entry in entries)


def _contains(entry: str, address: Address) -> bool:
    try:
        found = parse_range(entry.replace(" ", ""))
    except InvalidText:
        return False
    return found.family is address.family and found.contains(address.value)


def _is(entry: str, address: Address) -> bool:
    """An entry for this one address, however it is written; a wider range is the administrator's."""
    try:
        found = parse_range(entry.replace(" ", ""))
    except InvalidText:
        return False
    return found.family is address.family and found.first == found.last == address.value
