"""What the ledger asks of a database, and which database a URL means. Statements are written once, in
PostgreSQL's words; `sqlite.py` and `postgres.py` hold everything in which the two differ.

A transaction begins by locking pool rows. Every writer of a pool does so, in every replica and command, so
what happens under the lock is in order; unique rows still refuse a double if anything ever got past it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from berth.errors import UserError
from berth.store.clock_guard import apart, monotonic_ms

Row = Sequence[Any]


@dataclass(slots=True)
class UtcClock:
    """UTC milliseconds. Tests move `shift_ms`; the guard of the sweep is there to notice such moves."""

    shift_ms: int = 0
    _trusted_ms: int = field(init=False)
    _elapsed_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.trust()

    def trust(self) -> None:
        """Our date is right now, as far as anybody can tell."""
        self._trusted_ms, self._elapsed_ms = self.system_ms() - self.shift_ms, monotonic_ms()

    def system_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.shift_ms

    def begins(self, database_ms: int) -> int:
        """From when a period counts that begins now, so that it never ends early: the database's time,
        unless that is far behind ours, or behind what ours was when it was last trusted and the time since.
        """
        steady_ms = self._trusted_ms + self.shift_ms + monotonic_ms() - self._elapsed_ms
        ours = max(self.system_ms(), steady_ms)
        return ours if ours > database_ms and apart(ours, database_ms) else database_ms


@dataclass(frozen=True, slots=True)
class Locked:
    """What the lock of some pools tells: the database's time, from when a period that begins now counts,
    and each pool's revision.
    """

    now: int
    begins: int
    revisions: dict[str, int]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a group of requests writes: rows of three tables, and the pools whose revision then moves."""

    addresses: list[tuple[Any, ...]]
    holders: list[tuple[Any, ...]]
    history: list[tuple[Any, ...]]
    pools: list[str]


class Standby(Enum):
    """What follows the database, in case it has to take over."""

    SAFE = "none, or commits wait for it"
    LAGGING = "one that no commit waits for"
    HIDDEN = "something that no commit waits for, and our role may not see what it is"


class Transaction(Protocol):
    """Statements of one transaction. Placeholders are $1, $2, …; lists go with `= ANY($n)`."""

    async def lock(self, pools: Sequence[str] | None) -> Locked:
        """Lock these pools (None: all), sorted, until the end of the transaction."""
        ...

    async def now(self) -> int: ...

    async def rows(self, sql: str, *args: Any) -> list[Row]: ...

    async def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...

    async def write(self, changes: Changes) -> dict[str, int]:
        """The rows of a group in as few steps as the engine can; the pools' new revisions."""
        ...

    async def migrate_alone(self) -> None:
        """Be the only one who changes the schema until the end of the transaction."""
        ...

    async def script(self, text: str) -> None:
        """Several statements without arguments."""
        ...


class Engine(Protocol):
    """A database. `slow` transactions may take long and must not hold up the event loop; `often`: it asks
    the same few questions again and again.
    """

    name: str
    clock: UtcClock
    one_writer: bool  # a single writer: one group commit for all pools

    def transaction(
        self, *, slow: bool = False, often: bool = False
    ) -> AbstractAsyncContextManager[Transaction]: ...

    def snapshot(self) -> AbstractAsyncContextManager[Transaction]:
        """One consistent view, read only, beside all writers."""
        ...

    async def standby(self) -> Standby:
        """Whether a failover could lose what was acknowledged."""
        ...

    async def close(self) -> None: ...


async def connect(url: str, clock: UtcClock | None = None) -> Engine:
    """The engine behind `sqlite:///path` or `postgresql://…`."""
    from berth.store.postgres import Postgres  # each driver is loaded only where it is used
    from berth.store.sqlite import Sqlite

    if url.startswith(("postgresql://", "postgres://")):
        return await Postgres.open(url, clock or UtcClock())
    return await Sqlite.open(sqlite_path(url), clock or UtcClock())


def sqlite_path(url: str) -> Path:
    prefix = "sqlite:///"
    if not url.startswith(prefix) or len(url) == len(prefix):
        raise UserError(
            f"--database: {without_password(url)!r} is neither sqlite:///FILE nor postgresql://HOST/NAME."
        )
    return Path(url.removeprefix(prefix))


def without_password(url: str) -> str:
    """A URL fit for a log: what stands before the host's @ is left out."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.rpartition('@')[2]}".partition("?")[0]
