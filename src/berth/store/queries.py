"""What people ask of the ledger: records by address, cluster, service or zone, and an address's history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from berth.store import rows, statement
from berth.store.engine import Engine, Transaction
from berth.store.requests import zone_of
from berth.store.rows import AddressRow, HistoryRow, HolderRow

PAGE = 5000


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """An address with everyone on it."""

    address: AddressRow
    holders: tuple[HolderRow, ...] = field(default=())

    @property
    def zone(self) -> str:
        return zone_of(self.address.pool)

    def state(self, now: int) -> str:
        entries = [row.entry for row in self.holders]
        if any(entry.active for entry in entries):
            return "in use"
        return "retained" if any(entry.lives(now) for entry in entries) else "lapsed"


async def record(engine: Engine, address: str, zone: str | None = None) -> LedgerRecord | None:
    async with engine.snapshot() as tx:
        found = await rows.addresses(tx, [address])
        if not found or (zone is not None and zone_of(found[0].pool) != zone):
            return None
        return LedgerRecord(found[0], tuple(await rows.holders_by(tx, "address", [address])))


async def records_of(engine: Engine, column: str, value: str) -> list[LedgerRecord]:
    """Every record with an entry whose `cluster_id` or `service_name` is this."""
    async with engine.snapshot() as tx:
        found = await tx.rows(f"SELECT DISTINCT address FROM holders WHERE {column} = $1", value)
        which = sorted(row[0] for row in found)
        return _joined(await rows.addresses(tx, which), await rows.holders_by(tx, "address", which))


async def all_records(
    tx: Transaction, wanted: Callable[[str], bool] = lambda _: True
) -> AsyncIterator[LedgerRecord]:
    """Page by page, so that a million are no more trouble than ten; `wanted` chooses by pool."""
    last = ""
    while True:
        sql = f"SELECT {statement.ADDRESS} FROM addresses WHERE address > $1 ORDER BY address LIMIT {PAGE}"
        page = [AddressRow.read(row) for row in await tx.rows(sql, last)]
        if not page:
            return
        last = page[-1].address
        chosen = [row for row in page if wanted(row.pool)]
        there = await rows.holders_by(tx, "address", [row.address for row in chosen])
        for record_ in _joined(chosen, there):
            yield record_


def _joined(addresses: list[AddressRow], holders: list[HolderRow]) -> list[LedgerRecord]:
    by_address: dict[str, list[HolderRow]] = {}
    for row in holders:
        by_address.setdefault(row.address, []).append(row)
    return [LedgerRecord(row, tuple(by_address.get(row.address, ()))) for row in addresses]


async def history(engine: Engine, address: str) -> list[HistoryRow]:
    sql = f"SELECT {statement.HISTORY} FROM history WHERE address = $1 ORDER BY id"
    async with engine.snapshot() as tx:
        return [HistoryRow.read(row) for row in await tx.rows(sql, address)]


async def all_history(tx: Transaction) -> AsyncIterator[HistoryRow]:
    last: Any = 0
    while True:
        sql = f"SELECT id, {statement.HISTORY} FROM history WHERE id > $1 ORDER BY id LIMIT {PAGE}"
        page = await tx.rows(sql, last)
        if not page:
            return
        last = page[-1][0]
        for row in page:
            yield HistoryRow.read(list(row)[1:])
