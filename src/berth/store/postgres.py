"""PostgreSQL through asyncpg, for several replicas. Pool rows are locked with FOR UPDATE, so correctness
needs neither SERIALIZABLE nor luck. A connection that was cut, or cancelled inside a transaction, is thrown
away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg

from berth.errors import StoreDown, Taken, UserError
from berth.store import statement
from berth.store.engine import Changes, Locked, Row, Standby, UtcClock, without_password

NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
SESSION = {
    "application_name": "berth",
    "synchronous_commit": "on",  # acknowledged is durable, whatever the server's default
    "statement_timeout": "30s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "default_transaction_isolation": "read committed",
}
# Planned once for a connection, by their indexes, and not again for each list of arguments.
OFTEN = "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan"
CONNECT_SECONDS = 5.0
# Tools that copy the log are no standbys: they have these names, and never say that they replayed anything.
# Without pg_monitor a role sees that something follows (its process id), but not what.
FOLLOWERS = """SELECT state, application_name IN
    ('pg_basebackup', 'pg_receivewal', 'pg_receivexlog', 'pg_recvlogical') AND replay_lsn IS NULL
  FROM pg_stat_replication WHERE current_setting('synchronous_standby_names') = ''"""
# The last one is what asyncpg says of a connection that was cut in the middle of a statement.
DOWN = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
    asyncpg.InternalClientError,
)


def _arrays(kinds: str, first: int) -> str:
    """`unnest` over one array argument per column; t, i and b are text, numbers and bytes."""
    names = {"t": "text", "i": "bigint", "b": "bytea"}
    return ", ".join(f"${first + at}::{names[kind]}[]" for at, kind in enumerate(kinds))


WRITE = f"""WITH a AS (INSERT INTO addresses ({statement.ADDRESS})
    SELECT * FROM unnest({_arrays("ttttbbi", 1)})),
  h AS (INSERT INTO holders ({statement.HOLDER})
    SELECT * FROM unnest({_arrays("ttttttiitiiti", 8)}) {statement.REPLACE_HOLDER}),
  e AS (INSERT INTO history ({statement.HISTORY})
    SELECT * FROM unnest({_arrays("itttitttt", 21)}) RETURNING pool, id, effect)
UPDATE pools SET revision = newest.id
FROM (SELECT pool, max(id) AS id FROM e WHERE effect <> 0 GROUP BY pool) AS newest
WHERE pools.key = newest.pool RETURNING key, revision"""


def _columns(found: list[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*found, strict=True)] if found else [[] for _ in range(width)]


@contextmanager
def translated_errors() -> Iterator[None]:
    """asyncpg's errors in ours: a double, or a database that cannot answer now."""
    try:
        yield
    except asyncpg.IntegrityConstraintViolationError as cause:
        raise Taken(cause.constraint_name or "a row") from cause
    except DOWN as cause:
        raise StoreDown(f"PostgreSQL: {type(cause).__name__}") from cause


class PostgresTransaction:
    """One transaction on one connection."""

    def __init__(self, connection: Any, clock: UtcClock) -> None:
        self._connection = connection
        self._clock = clock

    async def lock(self, pools: Sequence[str] | None) -> Locked:
        which, args = ("", []) if pools is None else ("WHERE key = ANY($1)", [list(pools)])
        sql = f"SELECT key, revision, {NOW} FROM pools {which} ORDER BY key FOR UPDATE"
        found = await self.rows(sql, *args)
        now = found[-1][2] + self._clock.shift_ms if found else await self.now()
        return Locked(now, self._clock.begins(now), {row[0]: row[1] for row in found})

    async def now(self) -> int:
        found = await self.rows(f"SELECT {NOW}")
        return int(found[0][0]) + self._clock.shift_ms

    async def rows(self, sql: str, *args: Any) -> list[Row]:
        with translated_errors():
            found: list[Row] = await self._connection.fetch(sql, *args)
            return found

    async def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        with translated_errors():
            await self._connection.executemany(sql, rows)

    async def write(self, changes: Changes) -> dict[str, int]:
        """All in one statement: every round trip is paid by the whole group."""
        columns = [
            *_columns(changes.addresses, 7),
            *_columns(changes.holders, 13),
            *_columns(changes.history, 9),
        ]
        return {row[0]: row[1] for row in await self.rows(WRITE, *columns)}

    async def migrate_alone(self) -> None:
        await self.rows("SELECT pg_advisory_xact_lock(7203861)")

    async def script(self, text: str) -> None:
        with translated_errors():
            await self._connection.execute(text)


class Postgres:
    """A pool of connections; it is filled when first used, so an API may start before its database."""

    name = "postgresql"
    one_writer = False

    def __init__(self, pool: Any, clock: UtcClock) -> None:
        self.clock = clock
        self._pool = pool

    @classmethod
    async def open(cls, url: str, clock: UtcClock) -> Postgres:
        try:
            pool = await asyncpg.create_pool(
                url,
                min_size=0,
                max_size=10,
                timeout=CONNECT_SECONDS,
                server_settings=SESSION,
                reset=nothing_to_reset,
            )
        except (ValueError, asyncpg.InterfaceError, OSError) as cause:
            # The cause is not told: it may quote a part of the password that was read as a port.
            raise UserError(
                f"--database {without_password(url)} cannot be read as postgresql://USER:PASSWORD@HOST/NAME; "
                "special characters of a password are written as %40 and the like."
            ) from cause
        return cls(pool, clock)

    @asynccontextmanager
    async def transaction(
        self, *, slow: bool = False, often: bool = False
    ) -> AsyncIterator[PostgresTransaction]:
        """`slow` makes no difference here: the work is done elsewhere."""
        async with self._connection() as connection:
            try:
                with translated_errors():
                    await connection.execute(OFTEN if often else "BEGIN")
                yield PostgresTransaction(connection, self.clock)
                with translated_errors():
                    await asyncio.shield(connection.execute("COMMIT"))
            except (Taken, StoreDown):
                await roll_back(connection)
                raise
            except BaseException:
                throw_away(connection)
                raise

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[PostgresTransaction]:
        async with self._connection() as connection:
            try:
                with translated_errors():
                    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                yield PostgresTransaction(connection, self.clock)
            finally:
                await roll_back(connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        with translated_errors():
            connection = await self._pool.acquire(timeout=CONNECT_SECONDS)
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    async def standby(self) -> Standby:
        async with self.snapshot() as tx:
            found = await tx.rows(FOLLOWERS)
        if any(state in ("streaming", "catchup") and not is_tool for state, is_tool in found):
            return Standby.LAGGING
        return Standby.HIDDEN if any(state is None for state, _ in found) else Standby.SAFE

    async def close(self) -> None:
        """Give connections a moment to end well, then end them."""
        try:
            await asyncio.wait_for(self._pool.close(), 3)
        except TimeoutError:
            self._pool.terminate()


async def nothing_to_reset(_: Any) -> None:
    """Nobody leaves anything in a session, and to ask for it would be one more way to the database and back
    for each group. An open transaction is rolled back all the same.
    """


async def roll_back(connection: Any) -> None:
    """Undo; a connection that cannot even do that is not used again."""
    try:
        await asyncio.wait_for(connection.execute("ROLLBACK"), 2)
    except asyncio.CancelledError:
        throw_away(connection)
        raise
    except DOWN:
        throw_away(connection)


def throw_away(connection: Any) -> None:
    """One that was cut may be gone from the pool before we know of it: then there is nothing left to do."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()
