"""The IPAM-API's store as an auditor reads it: one page per look, all tables as of one transaction, and what
a page may not show.

SQLite is opened read-only, PostgreSQL by a connection of our own; nothing of `berth.store` is used, which is
what is being checked. The checks are pure.
"""

from __future__ import annotations

import ipaddress
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import asyncpg

from berth.central.zones import EXAMPLE, parse_zones
from berth.net import Range

SQLITE = "sqlite:///"
AWAY_SECONDS = 5.0
ADDRESSES = "SELECT address, pool FROM addresses"
HOLDERS = "SELECT address, pool, identity, service_name, expires_at FROM holders"
AWAY = (sqlite3.OperationalError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class Row(NamedTuple):
    """An address that is taken."""

    address: str
    pool: str


class Holder(NamedTuple):
    address: str
    pool: str
    identity: str
    service: str
    expires_at: int | None

    def lives(self, now: int) -> bool:
        return self.expires_at is None or self.expires_at > now


class Event(NamedTuple):
    """A line of the history that took (1) or freed (-1) an address."""

    id: int
    pool: str
    address: str
    effect: int


@dataclass(frozen=True, slots=True)
class Page:
    now: int  # UTC milliseconds
    rows: list[Row] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)
    news: list[Event] = field(default_factory=list)  # since the last look


@dataclass(frozen=True, slots=True)
class Books:
    """Which store, and what is right in it."""

    url: str
    zones: str = EXAMPLE
    shared: bool = False  # holders who know its secret may be on one address together
    swept: bool = True  # somebody frees what has lapsed

    def ranges(self) -> dict[str, tuple[Range, ...]]:
        pools = parse_zones(self.zones, "the zones of the books").pools
        return {key: pool.ranges for key, pool in pools.items()}


class Reader:
    """Looks at a store, and remembers what its history told: that is how replicas know what is taken."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.ranges = books.ranges()
        self.told: Counter[str] = Counter()  # how often the history has it as taken
        self._last = dict.fromkeys(self.ranges, 0)

    async def page(self) -> Page:
        """Raises one of AWAY where the store does not answer."""
        url, asked = self.books.url, [ADDRESSES, HOLDERS, *self._news()]
        found = _sqlite(url, asked) if url.startswith(SQLITE) else await _postgres(url, asked)
        news = [Event(*row) for rows in found[2:] for row in rows]
        held = [Holder(*row) for row in found[1]]
        return Page(time.time_ns() // 1_000_000, [Row(*row) for row in found[0]], held, news)

    def _news(self) -> list[str]:
        """By pool: within one, ids are in the order of the commits; over all of them they need not be."""
        asked = "SELECT id, pool, address, effect FROM history WHERE effect <> 0"
        return [f"{asked} AND pool = '{pool}' AND id > {last}" for pool, last in self._last.items()]

    def judge(self, page: Page) -> list[str]:
        for event in page.news:
            self._last[event.pool] = max(self._last[event.pool], event.id)
            self.told[event.address] += event.effect
        self.told = Counter({address: times for address, times in self.told.items() if times})
        alone = [] if self.books.shared else together(page)
        return [*doubles(page.rows), *self._outside(page.rows), *alone, *strays(page), *self._lost(page)]

    def _outside(self, rows: Iterable[Row]) -> list[str]:
        return [
            f"I1: {row.address} is no address of {row.pool}"
            for row in rows
            if not any(_is_in(row.address, range_) for range_ in self.ranges.get(row.pool, ()))
        ]

    def _lost(self, page: Page) -> list[str]:
        """I2: nobody holds it, or those who follow the history believe otherwise than the table says."""
        held = {holder.address for holder in page.holders}
        rows = Counter(row.address for row in page.rows)
        return [
            *(f"I2: {address} has no holder" for address in sorted(rows.keys() - held)),
            *(
                f"I2: {address} has {rows[address]} rows, by the history {self.told[address]}"
                for address in sorted(rows.keys() | self.told.keys())
                if rows[address] != self.told[address]
            ),
        ]


def lapsed(page: Page) -> list[str]:
    """I2, if it stays so: nobody who lives is on it, and it is not free."""
    living = {holder.address for holder in page.holders if holder.lives(page.now)}
    left = {holder.address for holder in page.holders} - living
    return [f"I2: {address} has lapsed and is not free" for address in sorted(left)]


def doubles(rows: Iterable[Row]) -> list[str]:
    """I1: one address, however it is spelled, one row."""
    counted = Counter(str(ipaddress.ip_address(row.address)) for row in rows)
    return [f"I1: {address} has {times} rows" for address, times in counted.items() if times > 1]


def together(page: Page) -> list[str]:
    """I1, where nobody shares."""
    on: dict[str, list[str]] = defaultdict(list)
    for holder in page.holders:
        if holder.lives(page.now):
            on[holder.address].append(holder.service)
    return [f"I1: {address} has {sorted(who)}" for address, who in on.items() if len(who) > 1]


def strays(page: Page) -> list[str]:
    """I1: a holder is on an address of its own pool, and active on one of them only."""
    rows = set(page.rows)
    astray = [one for one in page.holders if Row(one.address, one.pool) not in rows]
    active: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    for holder in page.holders:
        if holder.expires_at is None:
            active[holder.identity, holder.pool].append(holder)
    return [
        *(f"I1: {one.service} is on {one.address} of {one.pool}, which has no row" for one in astray),
        *(
            f"I1: {held[0].service} is on {sorted(one.address for one in held)}"
            for held in active.values()
            if len(held) > 1
        ),
    ]


def _is_in(address: str, range_: Range) -> bool:
    value = ipaddress.ip_address(address)
    return value.version == int(range_.family) and range_.contains(int(value))


def _sqlite(url: str, asked: list[str]) -> list[list[Any]]:
    file = f"file:{url.removeprefix(SQLITE)}?mode=ro"
    with closing(sqlite3.connect(file, uri=True, isolation_level=None, timeout=AWAY_SECONDS)) as store:
        store.execute("BEGIN")
        return [store.execute(sql).fetchall() for sql in asked]


async def _postgres(url: str, asked: list[str]) -> list[list[Any]]:
    settings = {"application_name": "auditor"}
    store = await asyncpg.connect(url, timeout=AWAY_SECONDS, server_settings=settings)
    try:
        async with store.transaction(isolation="repeatable_read", readonly=True):
            return [await store.fetch(sql) for sql in asked]
    finally:
        await store.close(timeout=AWAY_SECONDS)
