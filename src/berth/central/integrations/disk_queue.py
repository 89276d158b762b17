"""A queue on disk for events on their way to Splunk, so that neither its outage nor our restart loses one. It
is bounded in events and in bytes. Requests only append to memory; one writer puts what has gathered into the
file. What does not fit is dropped, and counted.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, TypeVar

import orjson

from berth.errors import UserError
from berth.store.file_mode import make_private

T = TypeVar("T")
MEMORY_LIMIT = 20_000  # events not yet in the file
MEMORY_BYTES = 32 * 1024 * 1024
LIMIT_BYTES = 256 * 1024 * 1024
USUAL_BYTES = 1024  # of one event, at most


class DiskQueue:
    def __init__(
        self, path: Path, limit: int, dropped: Callable[[int], None], limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._dropped = dropped
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._turn = asyncio.Lock()
        make_private(path)
        try:
            path.touch(0o600)  # whoever reads it learns who has which address
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, body BLOB NOT NULL)"
            )
            counted = self._file.execute("SELECT count(*), coalesce(sum(length(body)), 0) FROM events")
            numbers: tuple[int, int] = counted.fetchone()
            self._stored, self._stored_bytes = numbers
        except (sqlite3.Error, OSError) as cause:
            raise UserError(f"The Splunk queue {path} cannot be opened: {cause}.") from cause

    def add(self, event: dict[str, Any]) -> None:
        """Called by requests: never waits."""
        body = orjson.dumps(event, default=str)
        if len(self._gathered) >= MEMORY_LIMIT or self._gathered_bytes + len(body) > MEMORY_BYTES:
            self._dropped(1)
            return
        self._gathered.append(body)
        self._gathered_bytes += len(body)

    async def store(self) -> None:
        """Put what has gathered into the file."""
        async with self._turn:
            bodies, self._gathered, self._gathered_bytes = self._gathered, [], 0
            if bodies:
                await in_thread(self._store, bodies)

    def _store(self, bodies: list[bytes]) -> None:
        lost = len(bodies)
        with suppress(sqlite3.Error):
            rows = [(one,) for one in self._fitting(bodies)]
            with self._file:  # commits, or rolls back on an error
                self._file.execute("BEGIN")
                self._file.executemany("INSERT INTO events (body) VALUES (?)", rows)
            lost -= len(rows)
            self._stored += len(rows)
            self._stored_bytes += sum(len(body) for (body,) in rows)
        if lost:
            self._dropped(lost)

    def _fitting(self, bodies: list[bytes]) -> list[bytes]:
        """Those at the head of the list for which there is room, by number and by size."""
        sizes = accumulate(map(len, bodies), initial=self._stored_bytes)
        next(sizes)
        fit = sum(1 for _ in takewhile(lambda size: size <= self._limit_bytes, sizes))
        return bodies[: max(0, min(fit, self._limit - self._stored))]

    async def oldest(self, count: int) -> list[tuple[int, bytes]]:
        return await self._work(self._oldest, count)

    async def _work(self, function: Callable[..., T], *args: Any) -> T:
        """In a thread, one at a time; the file's troubles become an OSError, which all our callers
        outlive.
        """
        async with self._turn:
            try:
                return await in_thread(function, *args)
            except sqlite3.Error as cause:
                raise OSError(str(cause)) from cause

    def _oldest(self, count: int) -> list[tuple[int, bytes]]:
        found = self._file.execute("SELECT id, body FROM events ORDER BY id LIMIT ?", (count,)).fetchall()
        return [(row[0], row[1]) for row in found]

    async def remove(self, up_to: int) -> None:
        await self._work(self._remove, up_to)

    def _remove(self, up_to: int) -> None:
        gone = self._file.execute(
            "DELETE FROM events WHERE id <= ? RETURNING length(body)", (up_to,)
        ).fetchall()
        self._stored -= len(gone)
        self._stored_bytes -= sum(size for (size,) in gone)

    @property
    def room(self) -> int:
        """For what can wait elsewhere: half of the queue is left to what cannot."""
        left = self._limit_bytes // 2 - self._stored_bytes - self._gathered_bytes
        return min((self._limit + 1) // 2 - self.length, left // USUAL_BYTES)

    @property
    def length(self) -> int:
        """Counted along: reading a full queue several times a second would keep the disk busy."""
        return self._stored + len(self._gathered)

    async def close(self) -> None:
        await self.store()
        async with self._turn:
            self._file.close()


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Seen through also when its caller is cancelled: the file is never closed under a thread, and what a
    batch could not keep is counted.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
