"""Frees what nobody holds any more: entries whose time has passed, then addresses without entries, in one
transaction per pool and portion, each condition checked again in the statement that deletes. One replica at a
time does it (a row says who), and none does while the clock cannot be trusted (`clock_guard.py`). Time that
is only doubted is taken off: what it would have ended is freed later by as much.
"""

from __future__ import annotations

from dataclasses import dataclass

from berth.leasing.holders import DAY_MS, Identity
from berth.store import kv, operators, rows, statement
from berth.store.clock_guard import ClockGuard, apart
from berth.store.engine import Row, Transaction
from berth.store.ledger import Ledger
from berth.store.rows import HistoryRow

PORTION = 500
CLOCK = "clock"

LAPSED = f"""DELETE FROM holders WHERE expires_at <= $2 AND (address, identity) IN (
  SELECT address, identity FROM holders WHERE pool = $1 AND expires_at <= $2
  ORDER BY expires_at LIMIT {PORTION})
RETURNING address, service_name, namespace_id, cluster_id"""
EMPTY = """DELETE FROM addresses WHERE address = ANY($1)
AND NOT EXISTS (SELECT 1 FROM holders WHERE holders.address = addresses.address) RETURNING address, uid"""
PRUNE_HISTORY = f"""DELETE FROM history WHERE at < $1 AND id IN
  (SELECT id FROM history ORDER BY id LIMIT {PORTION}) RETURNING id"""
PRUNE_SEEN = "DELETE FROM seen_events WHERE at < $1"


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass did."""

    entries: int = 0
    addresses: int = 0
    held_back: str = ""  # why it did nothing: OtherReplica, ClockJumped or ClocksApart
    doubted_ms: int = 0  # by how much later it frees, since nobody measured that time


@dataclass(frozen=True, slots=True)
class Sweeper:
    """One per process; `who` tells replicas apart."""

    ledger: Ledger
    guard: ClockGuard
    who: str
    lease_ms: int = 90_000
    history_ms: int = 365 * 24 * 3600 * 1000

    async def sweep(self) -> Swept:
        """Free everything whose time has passed. Raises StoreDown; then the next pass goes on."""
        held_back = await self._held_back()
        if held_back:
            await self.ledger.refresh()
            return Swept(held_back=held_back, doubted_ms=self.guard.doubted_ms)
        entries = addresses = 0
        for pool in sorted(self.ledger.memory.spaces):
            while True:
                gone, freed = await self._portion(pool)
                entries, addresses = entries + gone, addresses + freed
                if gone < PORTION:
                    break
        await self._prune()
        # What was freed comes to memory as any other replica's doing does: from the history, in its order.
        await self.ledger.refresh()
        return Swept(entries, addresses, doubted_ms=self.guard.doubted_ms)

    async def _held_back(self) -> str:
        async with self.ledger.engine.transaction() as tx:
            now = await tx.now()
            if apart(now, self.ledger.engine.clock.system_ms()):
                return "ClocksApart"
            stamp = self.guard.believes(now, await kv.mark(tx, CLOCK))
            if stamp is None:
                return "ClockJumped"
            self.ledger.engine.clock.trust()
            if not await kv.take_lease(tx, "sweep", self.who, (now, now + self.lease_ms)):
                return "OtherReplica"
            await kv.set_mark(tx, CLOCK, stamp.text())
            return ""

    async def _portion(self, pool: str) -> tuple[int, int]:
        """Some lapsed entries of a pool, and the addresses they were the last on."""
        async with self.ledger.engine.transaction() as tx:
            locked = await tx.lock([pool])
            lapsed = await tx.rows(LAPSED, pool, locked.now - self.guard.doubted_ms)
            if not lapsed:
                return 0, 0
            freed = await tx.rows(EMPTY, sorted({row[0] for row in lapsed}))
            await self._record(tx, (locked.now, pool), lapsed, freed)
            await rows.advance(tx, [pool] if freed else [])
        return len(lapsed), len(freed)

    async def _record(
        self, tx: Transaction, what: tuple[int, str], lapsed: list[Row], freed: list[Row]
    ) -> None:
        now, pool = what
        left = [HistoryRow(now, pool, row[0], "left", 0, Identity(*row[1:])) for row in lapsed]
        await rows.record(tx, left + [HistoryRow(now, pool, row[0], "freed", -1) for row in freed])
        if self.ledger.rules.mirror and freed:
            await tx.many(statement.INSERT_OUTBOX, [(now, "drop", row[0], pool, row[1]) for row in freed])

    async def _prune(self) -> None:
        async with self.ledger.engine.transaction() as tx:
            now = await tx.now() - self.guard.doubted_ms
            before = now - self.history_ms
            await tx.rows(PRUNE_SEEN, before)
            await operators.prune(tx, now - DAY_MS)
        while await self._prune_history(before) == PORTION:
            pass

    async def _prune_history(self, before: int) -> int:
        async with self.ledger.engine.transaction() as tx:
            return len(await tx.rows(PRUNE_HISTORY, before))

    async def stop(self) -> None:
        """Another replica goes on at once, with whatever this one did for all of them."""
        async with self.ledger.engine.transaction() as tx:
            await kv.drop_leases(tx, self.who)
