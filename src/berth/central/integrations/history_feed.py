"""Tells Splunk what became of addresses: from the ledger's history, where every change stands, whether a
request, the sweep, ROR, an operator's report or a command made it, and through whichever replica. One
replica at a time does it. How far it came is kept in the database, so that no stop, nor Splunk's outage,
leaves a change untold; after a crash the last ones may be told twice.
"""

from __future__ import annotations

import asyncio

from berth.central.integrations.disk_queue import DiskQueue
from berth.central.integrations.event_log import EventLog
from berth.errors import StoreDown
from berth.store import kv, statement
from berth.store.engine import Engine
from berth.store.rows import HistoryRow

CALLER = "central/chronicle"
MARK = LEASE = "chronicle"
PORTION = 500
EVERY_SECONDS = 1.0
LEASE_MS = 15_000
NEWEST = "SELECT coalesce(max(id), 0) FROM history"
SINCE = f"SELECT id, {statement.HISTORY} FROM history WHERE id > $1 ORDER BY id LIMIT $2"


class HistoryFeed:
    def __init__(self, engine: Engine, spool: DiskQueue, journal: EventLog, who: str) -> None:
        self._engine = engine
        self._spool = spool
        self._journal = journal
        self._who = who

    async def begin(self) -> None:
        """What was before Splunk, or before a restore, is not told."""
        async with self._engine.transaction() as tx:
            await tx.lock(None)
            mark, newest = await kv.mark(tx, MARK), (await tx.rows(NEWEST))[0][0]
            if not mark or int(mark) > newest:
                await kv.set_mark(tx, MARK, str(newest))

    async def tell_forever(self) -> None:
        while True:
            try:
                while await self.tell():
                    pass
            except StoreDown as cause:
                self._journal.tell("history not readable", CALLER, level="warn", cause=str(cause))
            await asyncio.sleep(EVERY_SECONDS)

    async def tell(self) -> bool:
        """Some changes, oldest first; False when there are no more for now. They wait in the history while
        the queue has no room for them.
        """
        room = self._spool.room
        told = await self._read(min(PORTION, room)) if room > 0 else []
        if not told:
            return False
        for _, event in told:
            self._write(event)
        await self._spool.store()
        async with self._engine.transaction() as tx:
            await kv.set_mark(tx, MARK, str(told[-1][0]))
        return True

    async def _read(self, most: int) -> list[tuple[int, HistoryRow]]:
        """What was not told yet, for whoever has the lease. Under the locks of all pools, since every writer
        has one of them: so nothing with a smaller number can still come.
        """
        async with self._engine.transaction() as tx:
            now = await tx.now()
            if not await kv.take_lease(tx, LEASE, self._who, (now, now + LEASE_MS)):
                return []
            mark = int(await kv.mark(tx, MARK) or 0)
            if mark >= (await tx.rows(NEWEST))[0][0]:
                return []
            await tx.lock(None)
            found = await tx.rows(SINCE, mark, most)
            return [(row[0], HistoryRow.read(row[1:])) for row in map(tuple, found)]

    def _write(self, event: HistoryRow) -> None:
        who = event.who
        self._journal.app(
            f"address {event.event}",
            CALLER,
            at=event.at / 1000,
            pool=event.pool,
            address=event.address,
            service_name=who.service_name if who else "",
            namespace_id=who.namespace_id if who else "",
            cluster_id=who.cluster_id if who else "",
            by=event.detail,
        )
