"""T15, T16: the disk is slow or full, and every connection of the database is somebody else's."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from tests.central.faults.asking import END_SESSIONS, asked
from tests.support.central import World, running
from tests.support.disks import filled, small_disk
from tests.support.lives import Life, lives
from tests.support.postgres import PostgresServer, short_folder
from tests.support.started import api_process

from berth.central.client import Access, ApiClient
from berth.errors import ApiRefused

pytestmark = pytest.mark.faults
REFUSED_SECONDS = 15.0  # three times what it tries to connect
MOST_ADDRESSES = 5000


async def test_t15_a_slow_disk_holds_up_only_who_waits_for_it(
    tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T15: a sync takes two seconds. Who only looks is answered meanwhile, and what was answered is kept."""
    database = f"sqlite:///{tmp_path}/berth.db"
    with lives(database, tmp_path / "pepper") as run:
        async with aiohttp.ClientSession() as session:
            for number in range(3):
                life = run.start(session, slow=2.0)
                writing = asyncio.create_task(life.ask("POST", f"slow{number}"))
                waited = await longest_look(life, writing)
                assert waited < 1.0
                reply = await writing
                assert reply is not None
                assert reply.status == 200
                life.kill()
                again = await run.start(session).ask("POST", f"slow{number}")
                assert again is not None
                assert again.address == reply.address, "I3: it was answered and is gone"
                tried(1)


async def longest_look(life: Life, writing: asyncio.Task[Any]) -> float:
    """While somebody waits for the disk."""
    taken = []
    while not writing.done():
        started_at = time.monotonic()
        looked = await life.send("GET", "/readyz", None)
        assert looked is not None
        assert looked.status == 200
        taken.append(time.monotonic() - started_at)
        await asyncio.wait([writing], timeout=0.05)
    assert len(taken) > 5, "the disk was not slow"
    return max(taken)


@asynccontextmanager
async def all_connections_taken(url: str) -> AsyncIterator[None]:
    """Those that the API had, too: it is left without any, and gets no other."""
    mine = [await asyncpg.connect(url)]
    try:
        most = int(await mine[0].fetchval("SHOW max_connections"))
        async with asyncio.timeout(60):
            while len(mine) < most:
                with suppress(asyncpg.TooManyConnectionsError):
                    mine.append(await asyncpg.connect(url))
                    continue
                await mine[0].execute(END_SESSIONS)
        yield
    finally:
        for connection in mine:
            await connection.close()


@pytest.mark.postgres
async def test_t15_no_free_connection_is_a_clean_503_in_time_and_heals_alone(
    tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T15: others have all of the server's connections; who asks is told so, and nothing is left of it."""
    server = PostgresServer(short_folder())
    try:
        async with running(server.database(), tmp_path / "pepper") as world:
            for number in range(3):
                kept = await world.post(f"before{number}")
                async with all_connections_taken(server.url):
                    took = await asyncio.gather(*(_refused(world, f"during{number}-{n}") for n in range(5)))
                    assert max(took) < REFUSED_SECONDS
                assert (await world.post(f"after{number}")).status == 200
                assert (await world.post(f"before{number}")).body["address"] == kept.body["address"]
                tried(len(took))
            assert len(await world.stored()) == 6, "I2: something is left of those who were refused"
    finally:
        server.stop()


async def _refused(world: World, name: str) -> float:
    """Seconds until it was."""
    started_at = time.monotonic()
    reply = await world.post(name)
    assert (reply.status, reply.body["reason"]) == (503, "StoreDown")
    return time.monotonic() - started_at


async def test_t16_a_full_disk_is_a_clean_503_and_heals_alone(
    tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T16: SQLite's files may not grow; then they may again. What was answered stays."""
    database = f"sqlite:///{tmp_path}/berth.db"
    with lives(database, tmp_path / "pepper") as run:
        async with aiohttp.ClientSession() as session:
            life = run.start(session)
            for round_ in range(3):
                kept = await life.ask("POST", f"before{round_}")
                assert kept is not None
                size = max(os.stat(tmp_path / name).st_size for name in ("berth.db", "berth.db-wal"))
                resource.prlimit(life.pid, resource.RLIMIT_FSIZE, (size // 2, resource.RLIM_INFINITY))
                refused = await life.ask("POST", f"during{round_}")
                assert refused is not None
                assert (refused.status, refused.body["reason"]) == (503, "StoreDown")
                resource.prlimit(life.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
                after = await life.ask("POST", f"after{round_}")
                assert after is not None
                assert after.status == 200
                again = await life.ask("POST", f"before{round_}")
                assert again is not None
                assert again.address == kept.address
            tried(round_ + 1)
            life.kill()


async def test_t16_a_disk_full_for_database_and_log_stops_nobody(
    tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T16: not even a line of the log can be written."""
    with small_disk(tmp_path / "disk") as disk, api_process(disk, "--database", "sqlite:///berth.db") as api:
        async with ApiClient(Access(api.url + "/v2")) as client:
            kept = await client.register(asked("before"))
            with filled(disk):
                for number in range(60):
                    with pytest.raises(ApiRefused, match="the ledger cannot answer now"):
                        await client.register(asked(f"during{number}"))
                assert api.errors.stat().st_size % 4096 == 0, "the log was not hit"
            assert await client.register(asked("after")) != kept
            assert await client.register(asked("before")) == kept
    tried(1)


async def test_t16_a_disk_full_for_the_database_itself_loses_nothing(
    tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T16: the write-ahead log has room in its file, and the database's own must grow and cannot. Answers go
    on until that room is used up too; all of them are kept, through a kill as well.
    """
    told: dict[str, str] = {}
    with small_disk(tmp_path / "disk", 12) as disk:
        database = disk / "berth.db"

        async def fill(client: ApiClient, *, until_carried_over: bool) -> None:
            """Until the log was carried over to the database once: from then on its file is written again
            from its start. Or until nothing more can be written."""
            before = database.stat().st_size
            for _ in range(MOST_ADDRESSES):
                name = f"s{len(told)}"
                told[name] = await client.register(asked(name))
                if until_carried_over and database.stat().st_size != before:
                    return
            raise AssertionError(f"{MOST_ADDRESSES} addresses later it still goes on")

        with api_process(disk, "--database", f"sqlite:///{database}") as api:
            async with ApiClient(Access(api.url + "/v2")) as client:
                await fill(client, until_carried_over=True)
                with filled(disk):
                    size, known = database.stat().st_size, len(told)
                    with pytest.raises(ApiRefused, match="the ledger cannot answer now"):
                        await fill(client, until_carried_over=False)
                    assert len(told) > known + 20, "the log had no room: this was not about the database"
                    assert database.stat().st_size == size
                told["after"] = await client.register(asked("after"))
            api.kill()
        with api_process(disk, "--database", f"sqlite:///{database}") as api:
            async with ApiClient(Access(api.url + "/v2")) as client:
                for name, address in told.items():
                    assert await client.register(asked(name)) == address, f"I3: {name} was told another"
                await fill(client, until_carried_over=True)
    assert len(set(told.values())) == len(told), "I1: one address, two holders"
    tried(1)
