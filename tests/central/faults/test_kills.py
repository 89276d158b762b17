"""T01, T03, T26: the API killed at every step, on both stores. What was acknowledged stays, nothing is
lost or double.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import aiohttp
import pytest
from tests.support.central import OTHER_SECRET, SECRET, Reply
from tests.support.lives import Life, Lives, lives

from berth.store.engine import Engine, connect
from berth.store.looking import Record, all_records
from berth.store.migrate import migrate
from berth.store.secrets import Secret, load_pepper

pytestmark = pytest.mark.faults


async def scenario(life: Life, tag: str) -> dict[str, str]:
    """Register, join, update, release and register again; returns what was acknowledged: service →
    address.
    """
    acknowledged: dict[str, str] = {}

    async def ask(method: str, name: str, **changes: object) -> Reply | None:
        reply = await life.ask(method, f"{tag}-{name}", **changes)
        if reply is not None and reply.status == 200 and method == "POST":
            acknowledged[f"{tag}-{name}"] = reply.address
        return reply

    first = await ask("POST", "a")
    if first is None:
        return acknowledged
    for step in (
        ("POST", "b", {"address": first.address}),
        ("POST", "a", {"retention": 7}),
        ("DELETE", "b", {"address": first.address, "retention": 3}),
        ("POST", "c", {"pending": True}),
        ("POST", "c", {}),
    ):
        if await ask(step[0], step[1], **step[2]) is None:
            break
    return acknowledged


async def records(engine: Engine) -> dict[str, Record]:
    async with engine.snapshot() as tx:
        return {record.address.address: record async for record in all_records(tx)}


def check(found: dict[str, Record], acknowledged: dict[str, str]) -> None:
    """I3: what was answered is there. I2: every address has a holder. I1: no holder is on two addresses."""
    on: dict[str, list[str]] = {}
    for address, record in found.items():
        assert record.holders, f"{address} has no holder"
        for row in record.holders:
            on.setdefault(row.entry.identity.service_name, []).append(address)
    assert all(len(addresses) == 1 for addresses in on.values())
    for service, address in acknowledged.items():
        assert on[service] == [address.partition("/")[0]]


async def kill_through(run: Lives, engine: Engine, steps: range, *, writes: bool = False) -> int:
    """One life per step; returns how many of them died."""
    acknowledged: dict[str, str] = {}
    died = 0
    async with aiohttp.ClientSession() as session:
        for step in steps:
            life = run.start(session, step, writes=writes)
            acknowledged |= await scenario(life, f"s{step}")
            died += not life.alive
            life.kill()
            check(await records(engine), acknowledged)
    return died


async def test_t01_killed_at_every_step(database: str, tmp_path: Path, times: int) -> None:
    """T01: 60 steps of a life on each store."""
    engine = await connect(database)
    await migrate(engine)
    with lives(database, tmp_path / "pepper") as run:
        died = 0
        for _ in range(times):
            died += await kill_through(run, engine, range(1, 61))
    assert died > 40 * times
    await engine.close()


async def test_t03_killed_at_the_nth_write_of_sqlite(tmp_path: Path, times: int) -> None:
    """T03: in the middle of what SQLite writes; afterwards the file is whole."""
    database = f"sqlite:///{tmp_path}/berth.db"
    engine = await connect(database)
    await migrate(engine)
    with lives(database, tmp_path / "pepper") as run:
        died = 0
        for _ in range(times):
            died += await kill_through(run, engine, range(1, 61), writes=True)
    assert died > 30 * times
    await engine.close()
    check_file = sqlite3.connect(tmp_path / "berth.db")
    assert check_file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check_file.close()


async def test_t26_a_rotation_killed_at_every_step_leaves_one_accepted_secret(
    database: str, tmp_path: Path, times: int
) -> None:
    """T26: 25 steps; old or new, never both and never neither; repeating it succeeds."""
    engine = await connect(database)
    await migrate(engine)
    pepper_file = tmp_path / "pepper"
    with lives(database, pepper_file) as run:
        async with aiohttp.ClientSession() as session:
            for step in range(1, 25 * times + 1):
                name = f"r{step}"
                life = run.start(session)
                reply = await life.ask("POST", name)
                assert reply is not None
                life.kill()
                dying = run.start(session, step % 25 + 1)
                answer = await dying.ask("POST", name, address=reply.address, new_secret=OTHER_SECRET)
                dying.kill()
                pepper = load_pepper(pepper_file, create=False)
                seal = (await records(engine))[reply.address.partition("/")[0]].address.seal
                accepted = [one for one in (SECRET, OTHER_SECRET) if pepper.opens(Secret(one), seal)]
                assert len(accepted) == 1
                assert answer is None or accepted == [OTHER_SECRET]
    await engine.close()
