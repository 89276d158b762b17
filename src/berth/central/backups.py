"""Backups by the clock: every so often the whole ledger into a folder, as `berth ledger backup` writes it,
and the oldest ones go. One replica at a time has that lease, for two minutes at a time and as long as it
writes: when one is killed, another goes on soon, however rarely a backup is due. When that is, is in the
database, so neither a restart nor another replica begins to count anew.

It reads by a connection and in a thread of its own, so that requests do not wait for it. A failure is told,
counted, and tried again; nothing else notices.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from berth.central.integrations.event_log import EventLog
from berth.central.metrics import ApiMetrics
from berth.central.settings import Backup
from berth.errors import BerthError, StoreDown
from berth.store import kv, snapshot
from berth.store.engine import Engine, Transaction, connect
from berth.store.snapshot import PART, Counted

CALLER = "central/backups"
MARK = "backup"
OURS = re.compile(r"berth-\d{8}T\d{6}Z\.jsonl\.gz")
UNFINISHED = re.compile(OURS.pattern + re.escape(PART))
LOOK_SECONDS = 30.0  # how often at most it is looked whether one is due; a failed one is tried again then
LEASE_MS = (
    120_000  # after a kill another one may begin then; longer than a look, or a moment without database
)
RENEW_SECONDS = 30.0
STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Backups:
    """One per process; `who` tells replicas apart."""

    settings: Backup
    folder: Path
    database: str
    engine: Engine
    metrics: ApiMetrics
    journal: EventLog
    who: str

    async def back_up_forever(self) -> None:
        every = self.settings.every_seconds
        self.metrics.backup_every.set(every)
        while True:
            try:
                if await self.is_due():
                    await self.back_up()
            except Exception as cause:  # the server goes on, and the next look tries again
                self.metrics.backup_failures.inc()
                told = str(cause) if isinstance(cause, BerthError) else f"{type(cause).__name__}: {cause}"
                self.journal.tell("backup failed", CALLER, level="error", cause=told[:300])
            await asyncio.sleep(min(every / 4, LOOK_SECONDS))

    async def is_due(self) -> bool:
        """True in the replica that has the lease, once the last backup, whoever made it, is old enough."""
        every_ms = round(self.settings.every_seconds * 1000)
        async with self.engine.transaction() as tx:
            now = await tx.now()
            last = int(await kv.mark(tx, MARK) or 0)
            self.metrics.backup_at.set(last / 1000)
            return await self._has_lease(tx) and not last <= now < last + every_ms

    async def _has_lease(self, tx: Transaction) -> bool:
        now = await tx.now()
        return await kv.take_lease(tx, MARK, self.who, (now, now + LEASE_MS))

    async def renew_lease(self) -> None:
        """While one is being written. Where the database is away for a moment, the next time does."""
        with suppress(StoreDown):
            async with self.engine.transaction() as tx:
                await self._has_lease(tx)

    async def back_up(self) -> Path:
        began = time.monotonic()
        async with self.engine.snapshot() as tx:
            at = await tx.now()
        name = time.strftime("berth-%Y%m%dT%H%M%SZ.jsonl.gz", time.gmtime(at / 1000))
        path = self.folder / name
        written = await in_thread(self.database, path, self.renew_lease)
        async with self.engine.transaction() as tx:
            await kv.set_mark(tx, MARK, str(at))
        self.metrics.backup_at.set(at / 1000)
        self.metrics.backup_seconds.set(time.monotonic() - began)
        removed = await asyncio.to_thread(tidy, self.folder, self.settings.keep)
        self.journal.tell("backed up", CALLER, file=name, addresses=written.addresses, removed=removed)
        return path


async def in_thread(database: str, path: Path, meanwhile: Callable[[], Awaitable[None]]) -> Counted:
    """A thread with a loop and a connection of its own: reading a million rows and packing them would hold
    up every request of ours. Whoever is cancelled tells it to stop, and waits until it did.
    """
    stop = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(_write(database, path, stop))))
    try:
        while not (await asyncio.wait([work], timeout=RENEW_SECONDS))[0]:
            await meanwhile()
        return work.result()
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work], timeout=STOP_SECONDS)
        with suppress(BaseException):
            work.exception()
        raise


async def _write(database: str, path: Path, stop: threading.Event) -> Counted:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    drop_unfinished(path.parent)
    engine = await connect(database)
    try:
        return await snapshot.write(engine, path, whole=True, go_on=lambda: not stop.is_set())
    finally:
        await engine.close()


def tidy(folder: Path, keep: int) -> int:
    """Remove all but the newest; only what has a name as we give it. Names are in the order of time."""
    ours = sorted(one for one in folder.iterdir() if OURS.fullmatch(one.name))
    for one in ours[:-keep]:
        one.unlink(missing_ok=True)
    return len(ours[:-keep])


def drop_unfinished(folder: Path) -> None:
    """What a process left that was killed. Where the writer lives its lock is held, and the file stays."""
    for one in folder.iterdir():
        if UNFINISHED.fullmatch(one.name):
            with suppress(OSError):
                file = os.open(one, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    snapshot.lock(file, one)
                    one.unlink()
                finally:
                    os.close(file)
