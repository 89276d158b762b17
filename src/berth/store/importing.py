"""Records from elsewhere into the ledger: in portions, each one transaction; running it twice does no
harm. What is stored already is left as it is, and told apart: the same, or another's. A restore is one
transaction: all of a backup, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from berth.errors import UserError
from berth.store import rows, statement
from berth.store.engine import Engine, Transaction
from berth.store.ledger import ENSURE_POOL
from berth.store.queries import LedgerRecord
from berth.store.requests import family_of, zone_of
from berth.store.rows import AddressRow, HistoryRow

PORTION = 500
T = TypeVar("T")


@dataclass(slots=True)
class Imported:
    added: int = 0
    present: int = 0
    events: int = 0
    conflicts: list[str] = field(default_factory=list)  # addresses stored for another pool or record


async def import_records(engine: Engine, found: Iterable[LedgerRecord]) -> Imported:
    """Bring records in, and write into the history that they came."""
    done = Imported()
    for portion in portions(found):
        async with engine.transaction(slow=True) as tx:
            now, fresh = await _import(tx, portion, done)
            events = [HistoryRow(now, one.address.pool, one.address.address, "imported", 1) for one in fresh]
            await rows.record(tx, events)
            await rows.advance(tx, {event.pool for event in events})
    return done


async def _import(
    tx: Transaction, records: Sequence[LedgerRecord], done: Imported
) -> tuple[int, list[LedgerRecord]]:
    pools = sorted({record.address.pool for record in records})
    await tx.many(ENSURE_POOL, [(key, zone_of(key), family_of(key)) for key in pools])
    now = (await tx.lock(None)).now
    stored = {row.address: row for row in await rows.addresses(tx, [one.address.address for one in records])}
    fresh = _told_apart(records, stored, done)
    await tx.many(statement.INSERT_ADDRESS, [one.address.columns() for one in fresh])
    await tx.many(statement.UPSERT_HOLDER, [row.columns() for one in fresh for row in one.holders])
    return now, fresh


def _told_apart(
    records: Iterable[LedgerRecord], stored: dict[str, AddressRow], done: Imported
) -> list[LedgerRecord]:
    """Those whose address nobody has yet; of several records of one address, the first."""
    fresh = []
    for one in records:
        there = stored.setdefault(one.address.address, one.address)
        if there is one.address:
            fresh.append(one)
        elif (there.pool, there.uid) == (one.address.pool, one.address.uid):
            done.present += 1
        else:
            done.conflicts.append(one.address.address)
    done.added += len(fresh)
    return fresh


async def restore(engine: Engine, found: Iterable[LedgerRecord | HistoryRow]) -> Imported:
    """Into an empty ledger only: nobody's address is ever overwritten. Whatever `found` raises in the end,
    nothing stays of it.
    """
    done = Imported()
    async with engine.transaction(slow=True) as tx:
        await tx.lock(None)
        if await tx.rows("SELECT 1 FROM addresses LIMIT 1"):
            raise UserError("the ledger is not empty; restore into a new database.")
        for portion in portions(found):
            await _import(tx, [one for one in portion if isinstance(one, LedgerRecord)], done)
            events = [one for one in portion if isinstance(one, HistoryRow)]
            await rows.record(tx, events)
            done.events += len(events)
        if done.conflicts or done.present:
            raise UserError("the backup has an address twice; nothing was restored.")
        await rows.advance(tx, (await tx.lock(None)).revisions)
    return done


def portions(found: Iterable[T]) -> Iterator[list[T]]:
    source = iter(found)
    while portion := list(islice(source, PORTION)):
        yield portion
