"""The SQL ledger: pools, leases, holders; one row per address, and that row refuses doubles.

    async with Ledger.open(engine, rules, pools) as ledger:
        answer = await ledger.submit(RegisterRequest(...))

Requests go through `submit` and are settled in groups (`group_commit.py`, `settlement.py`). Everything an
administrator or a clock does (cluster release, sweep, undo, …) is in files of its own beside this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from berth import log
from berth.errors import StoreDown, Taken
from berth.leasing.model import Pool
from berth.leasing.usage import Usage
from berth.store.engine import Engine
from berth.store.group_commit import CommitGroup, GroupCommit
from berth.store.memory import PoolMemory
from berth.store.requests import LedgerAnswer, LedgerRequest, family_of, zone_of
from berth.store.settlement import LedgerRules, Settlement

ATTEMPTS = 3
ENSURE_POOL = "INSERT INTO pools (key, zone, family) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING"


class Ledger:
    """Opened once per process."""

    def __init__(self, engine: Engine, rules: LedgerRules) -> None:
        self.engine = engine
        self.rules = rules
        self.memory = PoolMemory()
        self._commits: GroupCommit | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, engine: Engine, rules: LedgerRules, pools: Mapping[str, Pool]
    ) -> AsyncIterator[Ledger]:
        """Everything held is read before the first request is served."""
        ledger = cls(engine, rules)
        await ledger.configure(pools)
        async with asyncio.TaskGroup() as tasks:
            ledger._commits = GroupCommit(tasks, ledger._settle, one_writer=engine.one_writer)
            yield ledger

    async def configure(self, pools: Mapping[str, Pool]) -> None:
        """Serve these pools from now on, and those that still have addresses from before."""
        async with self.engine.transaction(slow=True) as tx:
            wanted = [(key, zone_of(key), family_of(key)) for key in sorted(pools)]
            await tx.many(ENSURE_POOL, wanted)
            stored = [row[0] for row in await tx.rows("SELECT key FROM pools ORDER BY key")]
        changed = self.memory.configure({key: pools.get(key, Pool(key)) for key in stored})
        # A prefix may have come to a pool together with addresses that another pool gave out.
        try:
            async with self.engine.snapshot() as tx:
                await self.memory.load(tx, changed)
        except BaseException:
            self.memory.forget(changed)
            raise

    async def look(self, pools: Mapping[str, Pool]) -> None:
        """Read what is held without serving anything or writing down pools: for commands."""
        async with self.engine.snapshot() as tx:
            stored = [row[0] for row in await tx.rows("SELECT key FROM pools ORDER BY key")]
            keys = [*pools, *(key for key in stored if key not in pools)]
            self.memory.configure({key: pools.get(key, Pool(key)) for key in keys})
            await self.memory.load(tx)

    async def submit(self, request: LedgerRequest) -> LedgerAnswer:
        """Settle a request. StoreDown: nothing is known to have happened; asking again is safe."""
        if self._commits is None:
            raise StoreDown("the ledger is not open")
        if request.pool not in self.memory.spaces:
            assert request.otherwise is not None, "a pool nobody configured"
            return request.otherwise
        return await self._commits.submit(request)

    async def refresh(self) -> None:
        """Bring memory to what all replicas and commands have done."""
        async with self.engine.transaction() as tx:
            locked = await tx.lock(None)
            self.memory.meet(locked.revisions)
            await self.memory.catch_up(tx, locked.revisions)

    @property
    def waiting(self) -> int:
        return self._commits.waiting if self._commits else 0

    def usage(self) -> dict[str, Usage]:
        return self.memory.usage()

    async def _settle(self, group: CommitGroup) -> list[LedgerAnswer]:
        """One group, tried again when the picture was wrong or the connection was cut: requests are
        idempotent.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._settle_once(group)
            except (Taken, StoreDown) as cause:
                if isinstance(cause, Taken):
                    self.memory.forget({request.pool for request in group.requests()})
                if attempt == ATTEMPTS:
                    raise StoreDown(str(cause)) from cause
                log.get("berth.store").warning("settling again", cause=cause.reason, attempt=attempt)
        raise AssertionError("unreachable")

    async def _settle_once(self, group: CommitGroup) -> list[LedgerAnswer]:
        written: Settlement | None = None
        try:
            # Counting for a quota wants a plan for just these clusters.
            async with self.engine.transaction(often=not self.rules.quota) as tx:
                pools = [group.pool] if group.pool else sorted({one.pool for one in group.requests()})
                locked = await tx.lock(pools)
                requests = group.requests()
                settlement = Settlement(locked, self.rules, self.memory)
                await settlement.read(tx, requests)
                try:
                    answers = [settlement.settle(request) for request in requests]
                    revisions = await settlement.write(tx)
                except BaseException:
                    settlement.free_taken()  # as long as nobody else can have it
                    raise
                written = settlement
        except BaseException:
            # Not committed, or not known to be: free it in memory and see from the history what happened.
            # A sweep may have looked there before this line, so memory goes back to where the group began.
            if written is not None:
                written.free_taken()
                self.memory.rewind(written.locked.revisions)
            raise
        self.memory.committed(revisions, written.epoch)
        return answers
