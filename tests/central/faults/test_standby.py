"""T06: the database's standby takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.central.faults.asking import asked, grown, until_answered
from tests.support.central import running
from tests.support.eventually import eventually
from tests.support.postgres import PostgresServer, short_folder

from berth.central.client import Access, ApiClient
from berth.central.serve import open_engine
from berth.central.settings import ApiSettings
from berth.errors import UserError
from berth.store.engine import Standby, connect

pytestmark = [pytest.mark.faults, pytest.mark.postgres]
SYNC = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
STREAMS = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"


async def shows(server: PostgresServer, sql: str) -> None:
    async def found() -> bool:
        return "1" in await asyncio.to_thread(server.sql, sql)

    await eventually(found, 60)


async def wait_for_standby(primary: PostgresServer) -> None:
    """From now on every commit waits for the standby."""
    for sql in ("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"):
        await asyncio.to_thread(primary.sql, sql)
    await shows(primary, SYNC)


async def test_t06_a_synchronous_standby_that_takes_over_has_every_answer(
    tmp_path: Path, times: int, tried: Callable[[int], None]
) -> None:
    """T06: three promotions in a row under load; each new primary has what the old one acknowledged."""
    answered: dict[str, str] = {}
    with ExitStack() as stack:
        primary = PostgresServer(short_folder())
        stack.callback(primary.stop)
        folders = [short_folder() for _ in range(3 * times)]
        hosts = ",".join(str(folder) for folder in (primary.folder, *folders))
        name = primary.database().partition("@/")[2].partition("?")[0]
        url = f"postgresql://postgres:@/{name}?host={hosts}&target_session_attrs=read-write"
        async with running(url, tmp_path / "pepper") as world, ApiClient(Access(world.url + "/v2")) as client:
            stop = asyncio.Event()

            async def load(worker: int) -> None:
                number = 0
                while not stop.is_set():
                    who = f"w{worker}-{number}"
                    answered[who] = await until_answered(client, asked(who))
                    number += 1

            async with asyncio.TaskGroup() as tasks:
                for worker in range(4):
                    tasks.create_task(load(worker))
                for folder in folders:
                    standby = await asyncio.to_thread(primary.followed_by, folder)
                    stack.callback(standby.stop)
                    await wait_for_standby(primary)
                    await grown(answered)
                    await asyncio.to_thread(primary.kill)
                    await asyncio.to_thread(standby.promote)
                    await grown(answered)
                    primary = standby
                stop.set()
            stored = set(await world.stored())
    assert len(set(answered.values())) == len(answered), "I1: one address, two holders"
    assert {address.partition("/")[0] for address in answered.values()} <= stored, "I3: an answer is lost"
    tried(len(folders))


async def test_t06_a_standby_that_no_commit_waits_for_is_refused_at_start(
    tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T06: unless it is accepted; and a waiting one is fine."""
    with ExitStack() as stack:
        primary = PostgresServer(short_folder())
        stack.callback(primary.stop)
        settings = ApiSettings(database=primary.database())
        async with open_engine(settings):
            pass
        standby = await asyncio.to_thread(primary.followed_by, short_folder())
        stack.callback(standby.stop)
        await shows(primary, STREAMS)
        with pytest.raises(UserError, match="no commit waits for"):
            async with open_engine(settings):
                pass
        async with open_engine(ApiSettings(database=settings.database, allow_async_standby=True)):
            pass
        await wait_for_standby(primary)
        async with open_engine(settings):
            pass
    tried(1)


async def standby_of(url: str) -> Standby:
    engine = await connect(url)
    try:
        return await engine.standby()
    finally:
        await engine.close()


async def test_a_standby_is_noticed_by_a_role_that_may_not_see_it_and_by_whatever_name(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """To a plain role it is hidden: refused, and with the flag told; `pg_monitor` shows it. A name like those
    of PostgreSQL's own tools hides nothing.
    """
    with ExitStack() as stack:
        primary = PostgresServer(short_folder())
        stack.callback(primary.stop)
        database = primary.database()
        name = database.partition("@/")[2].partition("?")[0]
        await asyncio.to_thread(primary.sql, "CREATE ROLE plain LOGIN")
        await asyncio.to_thread(primary.sql, f"ALTER DATABASE {name} OWNER TO plain")
        plain = database.replace("postgres:@", "plain:@")
        assert await standby_of(plain) is Standby.SAFE
        standby = await asyncio.to_thread(primary.followed_by, short_folder(), "pg_x")
        stack.callback(standby.stop)
        await shows(primary, STREAMS + " AND application_name = 'pg_x'")
        assert (await standby_of(database), await standby_of(plain)) == (Standby.LAGGING, Standby.HIDDEN)
        for url, sentence in ((plain, "GRANT pg_monitor"), (database, "has a standby that no commit")):
            with pytest.raises(UserError, match=sentence):
                async with open_engine(ApiSettings(database=url)):
                    pass
        async with open_engine(ApiSettings(database=plain, allow_async_standby=True)):
            assert "hidden from our role" in "".join(capfd.readouterr())
        await asyncio.to_thread(primary.sql, "GRANT pg_monitor TO plain")
        assert await standby_of(plain) is Standby.LAGGING
        await wait_for_standby(primary)
        async with open_engine(ApiSettings(database=plain)):
            pass
