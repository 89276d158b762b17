"""Bugs planted in an API server's process, from the tests' side only. Each is what a careless change might do
to one rule of the ledger; `test_planted.py` shows which row catches it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from berth import log
from berth.central import bodies
from berth.central.integrations import ror
from berth.leasing.holders import Entry
from berth.secret import SecretHash
from berth.store import clusters, migrate, operators, rows, sqlite, statement
from berth.store.clusters import ClusterRelease, Order
from berth.store.engine import Changes, Engine
from berth.store.ledger import Ledger
from berth.store.memory import UNKNOWN, PoolMemory
from berth.store.postgres import PostgresTransaction
from berth.store.rows import AddressRow, Behind
from berth.store.settlement import Settlement
from berth.store.sqlite import SqliteTransaction
from berth.store.sweep import EMPTY, Sweeper

Put = Callable[[object, str, object], None]
PLANTS: dict[str, Callable[[Put], None]] = {}


def plant(name: str) -> Callable[[Callable[[Put], None]], Callable[[Put], None]]:
    def keep(change: Callable[[Put], None]) -> Callable[[Put], None]:
        PLANTS[name] = change
        return change

    return keep


LAPSED_OTHERS = """DELETE FROM holders WHERE pool = $1 AND expires_at <= $2 AND NOT (address = ANY($3))
RETURNING address, service_name, namespace_id, cluster_id"""


@plant("no unique index")
def _any_row(put: Put) -> None:
    """The table takes an address twice, and a replica believes its memory once it has one."""
    original, catch_up = migrate.migrations, PoolMemory.catch_up

    def migrations(engine_name: str) -> list[migrate.SchemaStep]:
        return [replace(one, text=_without_keys(one.text)) for one in original(engine_name)]

    async def believe(self: PoolMemory, tx: Any, revisions: Mapping[str, int]) -> None:
        unread = {key: at for key, at in revisions.items() if self.revisions.get(key, UNKNOWN) == UNKNOWN}
        await catch_up(self, tx, unread)

    put(migrate, "migrations", migrations)
    put(PoolMemory, "behind", lambda *_: Behind())
    put(PoolMemory, "catch_up", believe)


def _without_keys(text: str) -> str:
    text = text.replace("address       TEXT PRIMARY KEY", "address       TEXT NOT NULL")
    text = text.replace(" REFERENCES addresses (address)", "")
    before, table, after = text.partition("CREATE TABLE addresses (")
    return before + table + after.replace(") WITHOUT ROWID;", ");", 1) if table else text


@plant("cool-down in memory")
def _forgotten_retention(put: Put) -> None:
    """What is retained is remembered by the process; the store says it is over."""
    remembered: dict[tuple[str, str], int] = {}
    write = Settlement._write

    def shortened(self: Settlement, address: str, pool: str, entry: Entry, event: Any) -> None:
        if entry.expires_at is not None and entry.expires_at > self.now and not entry.pending:
            remembered[address, entry.identity.key] = entry.expires_at
            entry = replace(entry, expires_at=self.now)
        write(self, address, pool, entry, event)

    async def patient(self: Sweeper, pool: str) -> tuple[int, int]:
        async with self.ledger.engine.transaction() as tx:
            locked = await tx.lock([pool])
            lapsed = await tx.rows(LAPSED_OTHERS, pool, locked.now, [address for address, _ in remembered])
            freed = await tx.rows(EMPTY, sorted({row[0] for row in lapsed}))
            await self._record(tx, (locked.now, pool), lapsed, freed)
            await rows.advance(tx, [pool] if freed else [])
        return 0, len(freed)

    put(Settlement, "_write", shortened)
    put(Sweeper, "_portion", patient)


@plant("cleaner without re-check")
def _list_then_delete(put: Put) -> None:
    """The cleaner lists what has lapsed, and later deletes what it listed."""

    async def portion(self: Sweeper, pool: str) -> tuple[int, int]:
        sql = "SELECT DISTINCT address FROM holders WHERE pool = $1 AND expires_at <= $2"
        async with self.ledger.engine.snapshot() as tx:
            listed = [row[0] for row in await tx.rows(sql, pool, await tx.now())]
        await asyncio.sleep(0.02)
        async with self.ledger.engine.transaction() as tx:
            await tx.lock([pool])
            await tx.rows("DELETE FROM holders WHERE address = ANY($1)", listed)
            await tx.rows("DELETE FROM addresses WHERE address = ANY($1)", listed)
            freed = [rows.HistoryRow(await tx.now(), pool, address, "freed", -1) for address in listed]
            await rows.record(tx, freed)
            await rows.advance(tx, [pool] if listed else [])
        return 0, len(listed)

    put(Sweeper, "_portion", portion)


@plant("holder list overwritten")
def _overwrite(put: Put) -> None:
    """Who holds an address is a list that each request writes back as it knew it."""
    for kind in (SqliteTransaction, PostgresTransaction):
        put(kind, "write", _overwriting(kind.write))


def _overwriting(original: Callable[..., Awaitable[dict[str, int]]]) -> Callable[..., Any]:
    async def write(self: Any, changes: Changes) -> dict[str, int]:
        await self.rows("DELETE FROM holders WHERE address = ANY($1)", [row[0] for row in changes.holders])
        return await original(self, changes)

    return write


@plant("rotation in two commits")
def _two_commits(put: Put) -> None:
    """The old secret goes in one transaction, the new one comes in the next."""
    settle, write = Ledger._settle_once, Settlement.write
    rehashed: list[AddressRow] = []

    async def cleared(self: Settlement, tx: Any) -> dict[str, int]:
        rehashed[:] = self.rehashed.values()
        for row in rehashed:
            self.stored[row.address] = replace(row, secret_hash=SecretHash())
        return await write(self, tx)

    async def twice(self: Ledger, group: Any) -> Any:
        answers = await settle(self, group)
        async with self.engine.transaction() as tx:
            hashes = [
                (row.address, row.secret_hash.key_id, row.secret_hash.salt, row.secret_hash.digest)
                for row in rehashed
            ]
            await tx.many(statement.REPLACE_HASH, hashes)
        return answers

    put(Settlement, "write", cleared)
    put(Ledger, "_settle_once", twice)


@plant("body logged")
def _tell_bodies(put: Put) -> None:
    """What could not be parsed is logged, so that somebody may see why."""
    original = bodies.parsed

    def parsed(raw: bytes) -> dict[str, Any]:
        log.get("berth.api").debug("request", raw=raw.decode(errors="replace"))
        return original(raw)

    put(bodies, "parsed", parsed)


@plant("deny flag ignored")
def _release_all(put: Put) -> None:
    """A cluster that is gone is gone, whatever its services said."""
    original = clusters.release_cluster

    async def release(engine: Engine, order: Order) -> ClusterRelease:
        return await original(engine, replace(order, include_denied=True))

    put(ror, "release_cluster", release)


@plant("no sync")
def _lazy_disk(put: Put) -> None:
    """The disk will have it by and by."""
    original = sqlite.connection

    def connection(path: Path) -> sqlite3.Connection:
        opened = original(path)
        opened.execute("PRAGMA synchronous = OFF")
        return opened

    put(sqlite, "connection", connection)


@plant("frozen cluster released")
def _never_frozen(put: Put) -> None:
    """Whoever knows the secret may release, however many operators there are."""

    async def nothing(*_: Any) -> frozenset[str]:
        return frozenset()

    put(operators, "frozen", nothing)
