"""Engines: one contract for both. Commit or nothing, doubles refused by the row, snapshots that stand
still.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.support.eventually import eventually
from tests.support.postgres import PostgresServer

from berth.errors import StoreDown, Taken, UserError
from berth.store.engine import Engine, Transaction, connect, sqlite_path, without_password
from berth.store.migrate import migrate, migrations
from berth.store.sqlite import statements, translated
from berth.store.statement import INSERT_ADDRESS

POOL = "INSERT INTO pools (key, zone, family) VALUES ('inet/4', 'inet', 4)"
ROW = ("192.0.2.1", "inet/4", "u", "k", b"s", b"d", 1)


async def count(engine: Engine) -> int:
    async with engine.snapshot() as tx:
        return int((await tx.rows("SELECT count(*) FROM addresses"))[0][0])


async def test_a_transaction_that_fails_leaves_nothing(engine: Engine) -> None:
    with pytest.raises(RuntimeError):
        await _insert_and_fail(engine)
    assert await count(engine) == 0


async def _insert_and_fail(engine: Engine) -> None:
    async with engine.transaction() as tx:
        await tx.rows(POOL)
        await tx.many(INSERT_ADDRESS, [ROW])
        raise RuntimeError


async def test_the_addresss_own_row_refuses_a_double(engine: Engine) -> None:
    async with engine.transaction() as tx:
        await tx.rows(POOL)
        await tx.many(INSERT_ADDRESS, [ROW])
    with pytest.raises(Taken):
        await _insert_again(engine)
    assert await count(engine) == 1


async def _insert_again(engine: Engine) -> None:
    async with engine.transaction() as tx:
        await tx.many(INSERT_ADDRESS, [ROW])


async def test_lists_go_as_one_argument(engine: Engine) -> None:
    async with engine.transaction() as tx:
        await tx.rows(POOL)
        assert await _keys(tx, ["inet/4", "none"]) == ["inet/4"]
        assert await _keys(tx, []) == []


async def _keys(tx: Transaction, which: list[str]) -> list[str]:
    return [row[0] for row in await tx.rows("SELECT key FROM pools WHERE key = ANY($1)", which)]


async def test_a_snapshot_stands_still_while_others_write(engine: Engine) -> None:
    async with engine.snapshot() as tx:
        before = await tx.rows("SELECT count(*) FROM pools")
        async with engine.transaction() as other:
            await other.rows(POOL)
        assert list(await tx.rows("SELECT count(*) FROM pools")) == list(before)


async def test_the_pools_lock_makes_writers_wait_their_turn(engine: Engine) -> None:
    async with engine.transaction() as tx:
        await tx.rows(POOL)
    order: list[str] = []
    entered = asyncio.Event()

    async def writer(name: str) -> None:
        async with engine.transaction() as tx:
            await tx.lock(["inet/4"])
            order.append(f"{name} in")
            entered.set()
            await asyncio.sleep(0.05)
            order.append(f"{name} out")

    first = asyncio.create_task(writer("a"))
    await entered.wait()
    await asyncio.gather(first, writer("b"))
    assert order == ["a in", "a out", "b in", "b out"]


async def test_a_cancelled_transaction_leaves_nothing_and_the_next_one_works(engine: Engine) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with engine.transaction() as tx:
            await tx.rows(POOL)
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with engine.transaction() as tx:
        assert await _keys(tx, ["inet/4"]) == []


async def test_a_transaction_cancelled_while_it_begins_is_not_left_open(engine: Engine) -> None:
    for _ in range(50):
        task = asyncio.create_task(_insert_again(engine))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with engine.transaction() as tx:
            assert await tx.rows("SELECT 1")


async def test_migrating_twice_and_at_once_does_no_harm(database: str) -> None:
    one, other = await connect(database), await connect(database)
    reached = await asyncio.gather(migrate(one), migrate(other))
    assert set(reached) == {len(migrations(one.name))}
    assert await migrate(one) == reached[0]
    await one.close()
    await other.close()


async def test_a_newer_schema_than_we_know_is_worked_with(engine: Engine) -> None:
    async with engine.transaction() as tx:
        await tx.rows("INSERT INTO schema_versions (version, name, applied_at) VALUES (999, 'later', 1)")
        await tx.rows("ALTER TABLE addresses ADD COLUMN note TEXT NOT NULL DEFAULT ''")
        await tx.rows(POOL)
    assert await migrate(engine) == 999
    async with engine.transaction() as tx:
        await tx.many(INSERT_ADDRESS, [ROW])


def test_both_engines_ship_the_same_migrations() -> None:
    names = [[(one.version, one.name) for one in migrations(name)] for name in ("sqlite", "postgresql")]
    assert names[0] == names[1]


@pytest.mark.postgres
async def test_a_database_that_is_away_is_told_as_such_and_comes_back(postgres: PostgresServer) -> None:
    """However soon it is asked again after its sessions were ended."""
    database = postgres.database()
    engine, other = await connect(database), await connect(database)

    async def works() -> bool:
        try:
            async with engine.transaction() as tx:
                return bool(await tx.rows("SELECT 1"))
        except StoreDown:
            return False

    for _ in range(30):
        async with engine.transaction() as tx:
            pid = (await tx.rows("SELECT pg_backend_pid()"))[0][0]
        async with other.transaction() as tx:
            await tx.rows("SELECT pg_terminate_backend($1)", pid)
        await eventually(works, every=0)
    await engine.close()
    await other.close()


def test_urls() -> None:
    assert str(sqlite_path("sqlite:///a/b.db")) == "a/b.db"
    assert str(sqlite_path("sqlite:////a/b.db")) == "/a/b.db"
    with pytest.raises(UserError):
        sqlite_path("sqlite://")
    assert without_password("postgresql://u:p@h:1/d?password=x") == "postgresql://h:1/d"


def test_statements_in_sqlites_words() -> None:
    assert translated("SELECT a FROM b WHERE c = ANY($2) AND d = $1 FOR UPDATE") == (
        "SELECT a FROM b WHERE c IN (SELECT value FROM json_each(?2)) AND d = ?1"
    )
    assert statements("-- one; two\nA;\nB -- c\n;") == ["A", "B"]
