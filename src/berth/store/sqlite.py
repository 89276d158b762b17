"""SQLite: write-ahead log, full sync, one writer. Statements run where they are called, since they only
touch memory and the page cache; BEGIN (which may wait for a command's lock) and COMMIT (which waits for the
disk) run in the writer's own thread. Letting that thread run the statements too was slower: each of them
gives up and wants back the interpreter lock that a busy event loop holds (docs/decisions/0010-central-
store.md).
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import orjson

from berth.errors import StoreDown, Taken, UserError
from berth.store import statement
from berth.store.engine import Changes, Locked, Row, Standby, UtcClock
from berth.store.file_mode import make_private

BUSY_SECONDS = 5.0
T = TypeVar("T")


@lru_cache(maxsize=512)
def translated(sql: str) -> str:
    """PostgreSQL's words in SQLite's: list arguments, row locks and placeholders."""
    sql = re.sub(r"= ANY\(\$(\d+)\)", r"IN (SELECT value FROM json_each($\1))", sql)
    both = r"IN (\1 UNION SELECT value FROM json_each($\2))"
    sql = re.sub(r"= ANY\(ARRAY\((.*?)\) \|\| \$(\d+)::text\[\]\)", both, sql)
    return re.sub(r"\$(\d+)", r"?\1", sql.replace(" FOR UPDATE SKIP LOCKED", "").replace(" FOR UPDATE", ""))


def plain(args: Sequence[Any]) -> list[Any]:
    return [orjson.dumps(arg).decode() if isinstance(arg, list) else arg for arg in args]


@contextmanager
def translated_errors() -> Iterator[None]:
    """sqlite3's errors in ours: a double, or a database that cannot answer now."""
    try:
        yield
    except sqlite3.IntegrityError as cause:
        raise Taken(str(cause)) from cause
    except sqlite3.Error as cause:
        raise StoreDown(f"SQLite: {cause}") from cause


class SqliteTransaction:
    """One transaction of the writer, or of a reader's own connection."""

    def __init__(self, connection: sqlite3.Connection, clock: UtcClock, call: Callable[..., Any]) -> None:
        self._connection = connection
        self._clock = clock
        self._call = call  # runs a function here, or in a thread for slow work

    async def lock(self, pools: Sequence[str] | None) -> Locked:
        """BEGIN IMMEDIATE already is the lock; only the revisions are read."""
        if pools is None:
            found = await self.rows("SELECT key, revision FROM pools")
        else:
            found = await self.rows("SELECT key, revision FROM pools WHERE key = ANY($1)", list(pools))
        now = self._clock.system_ms()
        return Locked(now, self._clock.begins(now), {row[0]: row[1] for row in found})

    async def now(self) -> int:
        return self._clock.system_ms()

    async def rows(self, sql: str, *args: Any) -> list[Row]:
        with translated_errors():
            found: list[Row] = await self._call(self._fetch, translated(sql), plain(args))
            return found

    async def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with translated_errors():
            await self._call(self._connection.executemany, translated(sql), rows)

    async def write(self, changes: Changes) -> dict[str, int]:
        for sql, found in (
            (statement.INSERT_ADDRESS, changes.addresses),
            (statement.UPSERT_HOLDER, changes.holders),
            (statement.INSERT_HISTORY, changes.history),
        ):
            if found:
                await self.many(sql, found)
        moved = await self.rows(statement.ADVANCE, changes.pools) if changes.pools else []
        return {row[0]: row[1] for row in moved}

    async def migrate_alone(self) -> None:
        """There is only one writer anyway."""

    async def script(self, text: str) -> None:
        for one in statements(text):
            await self.rows(one)

    def _fetch(self, sql: str, args: list[Any]) -> list[Row]:
        return self._connection.execute(sql, args).fetchall()


async def here(function: Callable[..., T], *args: Any) -> T:
    return function(*args)


class Sqlite:
    """A database file with one writing connection."""

    name = "sqlite"
    one_writer = True

    def __init__(self, path: Path, clock: UtcClock) -> None:
        self.path = path
        self.clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-writer")
        self._turn = asyncio.Lock()
        make_private(path)
        self._writer = connection(path)

    @classmethod
    async def open(cls, path: Path, clock: UtcClock) -> Sqlite:
        try:
            return cls(path, clock)
        except sqlite3.Error as cause:
            raise UserError(f"The database {path} cannot be opened: {cause}.") from cause

    @asynccontextmanager
    async def transaction(
        self, *, slow: bool = False, often: bool = False
    ) -> AsyncIterator[SqliteTransaction]:
        async with self._turn:
            try:  # also around BEGIN: whoever is cancelled while it waits must not leave it open
                with translated_errors():
                    await self._in_thread(self._writer.execute, "BEGIN IMMEDIATE")
                yield SqliteTransaction(self._writer, self.clock, self._in_thread if slow else here)
                with translated_errors():
                    await self._in_thread(self._writer.execute, "COMMIT")
            except BaseException:
                await self._in_thread(self._roll_back)
                raise

    def _roll_back(self) -> None:
        # A full disk may have ended the transaction already; then there is nothing left to undo.
        with suppress(sqlite3.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Run in the writer's thread and see it through: a cancelled caller never leaves a statement
        behind.
        """
        work = asyncio.get_running_loop().run_in_executor(self._thread, function, *args)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[SqliteTransaction]:
        with translated_errors():
            reader = await asyncio.to_thread(connection, self.path)
        try:
            with translated_errors():
                await asyncio.to_thread(reader.execute, "BEGIN")
            yield SqliteTransaction(reader, self.clock, asyncio.to_thread)
        finally:
            await asyncio.to_thread(reader.close)

    async def standby(self) -> Standby:
        return Standby.SAFE  # there is nothing to fail over to

    async def close(self) -> None:
        async with self._turn:
            await self._in_thread(self._writer.close)
        self._thread.shutdown()


def statements(text: str) -> list[str]:
    """The statements of a script; comments go first, so that a semicolon in one does no harm."""
    without = re.sub(r"--[^\n]*", "", text)
    return [part.strip() for part in without.split(";") if part.strip()]


def connection(path: Path) -> sqlite3.Connection:
    opened = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("PRAGMA synchronous = FULL")
    opened.execute("PRAGMA foreign_keys = ON")
    opened.execute("PRAGMA cache_size = -65536")
    return opened
