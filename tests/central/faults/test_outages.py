"""T05, T14, T17: the database killed, lines cut, the clock moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio
from tests.central.faults.asking import END_SESSIONS, asked, grown, until_answered
from tests.faults.books import Books
from tests.faults.store_auditor import store_right
from tests.support.central import Reply, World, running
from tests.support.postgres import PostgresServer, short_folder
from tests.support.proxy import spoiling

from berth.central.client import Access, ApiClient
from berth.leasing.holders import DAY_MS
from berth.store.clock_guard import ClockGuard
from berth.store.engine import UtcClock
from berth.store.sweep import Sweeper

pytestmark = pytest.mark.faults
Start = Callable[..., AbstractAsyncContextManager[World]]


async def test_t14_cut_lines_and_refusals_never_make_a_second_address(
    start: Start, database: str, tmp_path: Path, times: int, seed: int, tried: Callable[[int], None]
) -> None:
    """T14: 2,000 requests, 30% of them spoiled; as many addresses as keys."""
    async with start() as world, store_right(Books(database), tmp_path):
        port = int(world.url.rpartition(":")[2])
        async with spoiling(port, 0.3, seed=seed) as (spoiler, spoiled_port):
            async with ApiClient(Access(f"http://127.0.0.1:{spoiled_port}/v2")) as client:
                names = [f"s{number % 500}" for number in range(2000 * times)]
                told: dict[str, str] = {}
                for first in range(0, len(names), 50):
                    some = names[first : first + 50]
                    answers = await asyncio.gather(*(until_answered(client, asked(name)) for name in some))
                    for name, address in zip(some, answers, strict=True):
                        assert told.setdefault(name, address) == address, f"I5: {name} was told another"
            assert spoiler.spoiled > 100
        assert len(set(told.values())) == 500, "I1: one address, two holders"
        assert len(await world.stored()) == 500
    tried(len(names))


@pytest.mark.postgres
async def test_t05_postgres_killed_under_load_loses_nothing(
    tmp_path: Path, times: int, tried: Callable[[int], None]
) -> None:
    """T05: SIGKILL of the whole server six times, and 24 times all its sessions ended in the middle of
    whatever they did; every answer stays true.
    """
    server = PostgresServer(short_folder())
    answered: dict[str, str] = {}
    faults = 0
    try:
        async with running(server.database(), tmp_path / "pepper") as world:
            async with ApiClient(Access(world.url + "/v2")) as client:
                stop = asyncio.Event()

                async def load(worker: int) -> None:
                    number = 0
                    while not stop.is_set():
                        name = f"w{worker}-{number}"
                        answered[name] = await until_answered(client, asked(name))
                        number += 1

                async with asyncio.TaskGroup() as tasks:
                    for worker in range(8):
                        tasks.create_task(load(worker))
                    for _ in range(6 * times):
                        for _ in range(4):
                            await grown(answered)
                            assert "True" in await asyncio.to_thread(server.sql, END_SESSIONS)
                            faults += 1
                        await grown(answered)
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.restart)
                        faults += 1
                    await grown(answered)
                    stop.set()
            assert len(set(answered.values())) == len(answered), "I1: one address, two holders"
            stored = set(await world.stored())
            held = {address.partition("/")[0] for address in answered.values()}
            assert held <= stored, f"I3: {sorted(held - stored)} were answered and are gone"
            assert len(stored) == len(answered)
        tried(faults)
    finally:
        server.stop()


# A session that waits in COMMIT for a standby that never comes: what it did is done, and nobody was told.
IN_COMMIT = END_SESSIONS + " AND wait_event = 'SyncRep'"
MOST_TOLD = 1000


@pytest.mark.postgres
async def test_t05_a_session_ended_in_its_commit_has_done_what_nobody_was_told(
    tmp_path: Path, times: int, tried: Callable[[int], None]
) -> None:
    """T05: 20 times; whoever asks again, be it the API itself, is told the address that was stored."""
    server = PostgresServer(short_folder())
    told: dict[str, str] = {}
    try:
        async with running(server.database(), tmp_path / "pepper") as world:
            async with asyncio.timeout(300):
                for number in range(20 * times):
                    name = await until_ended_in_commit(server, world, f"s{number}", told)
                    (stored,) = set(await world.stored()) - set(told.values())
                    told[name] = address_in(await world.post(name))
                    assert told[name] == stored, f"I5: {stored} was stored for {name}"
                    tried(1)
            assert len(await world.stored()) == len(told)
    finally:
        server.stop()


async def until_ended_in_commit(server: PostgresServer, world: World, word: str, told: dict[str, str]) -> str:
    """Who was not told. The server minds its new setting a little later: until then others are."""
    wait_for_standby(server, "nobody")
    for number in range(MOST_TOLD):
        name = f"{word}-{number}"
        asking = asyncio.create_task(world.post(name))
        while not asking.done():
            if await ended_in_commit(server):
                wait_for_standby(server, "")
                await asking
                return name
        told[name] = address_in(asking.result())
    raise AssertionError(f"nobody was ended in a COMMIT, {MOST_TOLD} were told")


def address_in(reply: Reply) -> str:
    return str(reply.body["address"].partition("/")[0])


def wait_for_standby(server: PostgresServer, name: str) -> None:
    server.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    server.sql("SELECT pg_reload_conf()")


async def ended_in_commit(server: PostgresServer) -> bool:
    return "True" in await asyncio.to_thread(server.sql, IN_COMMIT)


@pytest.mark.parametrize("days", [1 / 24, -1 / 24, 400, -400, 31])
async def test_t17_a_clock_that_jumps_frees_nothing_early(
    world: World, days: float, tried: Callable[[int], None]
) -> None:
    """T17: 0 early releases while the clock is wrong; once it is right again the sweep goes on."""
    await world.post("kept", address="83.118.168.10")
    await world.delete("kept", address="83.118.168.10", retention=30)
    await world.post("gone", address="83.118.168.11")
    await world.delete("gone", address="83.118.168.11")
    steady = Sweeper(world.ledger, ClockGuard(boot="steady"), "steady")
    await steady.sweep()
    assert await world.stored() == ["83.118.168.10"]
    world.advance(days=days)
    for _ in range(3):
        assert (await steady.sweep()).held_back == "ClockJumped"
        restarted = Sweeper(world.ledger, ClockGuard(boot="steady"), "steady")
        assert (await restarted.sweep()).held_back == "ClockJumped"
    assert await world.stored() == ["83.118.168.10"]
    world.advance(days=-days)
    assert (await steady.sweep()).held_back == ""
    assert await world.stored() == ["83.118.168.10"]
    tried(1)


class Stepped(UtcClock):
    """The date of this machine, put wrong."""

    step_ms = 0

    def system_ms(self) -> int:
        return super().system_ms() + self.step_ms


@pytest.mark.parametrize("days", [1 / 24, -1 / 24, 400, -400])
async def test_t17_what_is_released_while_our_date_is_wrong_is_kept_as_long_as_it_was_promised(
    world: World, days: float, tried: Callable[[int], None]
) -> None:
    """T17: on SQLite our date is the ledger's; on PostgreSQL the two are apart. The sweep stops on both."""
    clock = world.ledger.engine.clock = Stepped()
    await world.post("kept", address="83.118.168.10")
    await world.sweep()
    clock.step_ms = round(days * DAY_MS)
    await world.delete("kept", address="83.118.168.10", retention=30)
    assert (await world.sweep()).held_back in ("ClockJumped", "ClocksApart")
    clock.step_ms = 0
    clock.shift_ms = world.clock.shift_ms = 29 * DAY_MS
    assert (await world.sweep()).held_back == ""
    assert await world.stored() == ["83.118.168.10"]
    tried(1)


# A function that is found before PostgreSQL's own: this database's clock can be set.
SKEWED = """CREATE SCHEMA skewed; CREATE TABLE skewed.clock (ahead) AS SELECT interval '0';
CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM skewed.clock';
DO $$ BEGIN
  EXECUTE format('ALTER DATABASE %I SET search_path = skewed, pg_catalog', current_database());
END $$"""


class Skewed:
    """A database of which a test sets the clock."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def run(self, text: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(text)
        finally:
            await connection.close()

    async def ahead(self, seconds: float) -> None:
        await self.run(f"UPDATE skewed.clock SET ahead = interval '{seconds} seconds'")


@pytest_asyncio.fixture
async def skewed(postgres: PostgresServer) -> Skewed:
    one = Skewed(postgres.database())
    await one.run(SKEWED)
    return one


@pytest.mark.postgres
@pytest.mark.parametrize("hours", [1, -1, 9600, -9600])
async def test_t17_a_database_whose_date_is_not_ours_frees_nothing_early(
    skewed: Skewed, tmp_path: Path, hours: int, tried: Callable[[int], None]
) -> None:
    """T17: the sweep of every replica stops, a fresh one's on another host too, and goes on by itself; what
    was released meanwhile is kept for its days.
    """
    async with running(skewed.url, tmp_path / "pepper") as world:
        for name, last in (("before", 10), ("during", 11)):
            await world.post(name, address=f"83.118.168.{last}")
        await world.delete("before", address="83.118.168.10", retention=30)
        assert (await world.sweep()).held_back == ""
        await skewed.ahead(hours * 3600)
        assert (await world.delete("during", address="83.118.168.11", retention=30)).status == 200
        for boot in ("test", "another host"):
            fresh = Sweeper(world.ledger, ClockGuard(boot=boot), boot)
            assert (await fresh.sweep()).held_back == "ClocksApart"
        assert (await world.sweep()).held_back == "ClocksApart"
        assert "berth_sweep_clock_jumped 1.0" in (await world.send("GET", "/metrics")).body
        await skewed.ahead(0)
        world.advance(days=29)
        assert (await world.sweep()).held_back == ""
        assert await world.stored() == ["83.118.168.10", "83.118.168.11"]
        world.advance(days=1, seconds=60)
        await world.sweep()
        assert await world.stored() == (["83.118.168.11"] if hours > 0 else []), "later, but never early"
    tried(1)


@pytest.mark.postgres
@pytest.mark.parametrize("drift", [50, -50])
async def test_t17_a_database_that_drifts_away_is_noticed(
    skewed: Skewed, tmp_path: Path, drift: int, tried: Callable[[int], None]
) -> None:
    """T17: no single pass sees a jump; our own date shows how far it came."""
    async with running(skewed.url, tmp_path / "pepper") as world:
        for step, held_back in enumerate(("", "", "", "ClocksApart", "ClocksApart")):
            await skewed.ahead(step * drift)
            assert (await world.sweep()).held_back == held_back, step
    tried(1)
