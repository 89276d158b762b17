"""Backups by the clock: when they are due and who makes them, what stays, and that each one restores."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.central import World
from tests.support.eventually import eventually
from tests.support.processes import wait_until
from tests.support.started import api_process

from berth.central import backups
from berth.central.backups import LEASE_MS, OURS, Backups, tidy
from berth.central.integrations.event_log import EventLog
from berth.central.settings import Backup
from berth.store import importing, snapshot
from berth.store.engine import connect
from berth.store.migrate import migrate
from berth.store.queries import LedgerRecord
from berth.store.snapshot import Counted, Wanted

Start = Callable[..., AbstractAsyncContextManager[World]]
DAY = 24 * 3600.0
SOON = LEASE_MS / 1000 + 1


def on(world: World, folder: Path, who: str, journal: EventLog | None = None) -> Backups:
    where = (Backup(DAY, folder), folder, world.database, world.ledger.engine)
    return Backups(*where, world.api.metrics, journal or EventLog(), who)


def made(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if OURS.fullmatch(one.name)) if folder.exists() else []


def addresses(file: Path) -> set[str]:
    """Of a whole backup: read fails where its last line is not right."""
    found = snapshot.read(file, Wanted(backup=True, end=True))
    return {one.address.address for one in found if isinstance(one, LedgerRecord)}


async def test_one_is_due_once_the_last_is_old_enough_and_not_before(world: World, tmp_path: Path) -> None:
    """The first at once; a restart in between does not begin to count anew."""
    first = on(world, tmp_path, "first")
    assert await first.is_due()
    await first.back_up()
    world.advance(seconds=SOON)
    restarted = on(world, tmp_path, "restarted")
    assert not await restarted.is_due()
    world.advance(seconds=DAY - 2 * SOON)
    assert not await restarted.is_due()
    world.advance(seconds=SOON)
    assert await restarted.is_due()


async def test_of_two_replicas_one_backs_up(world: World, tmp_path: Path) -> None:
    one, two = on(world, tmp_path, "one"), on(world, tmp_path, "two")
    assert (await one.is_due(), await two.is_due()) == (True, False)
    await one.back_up()
    world.advance(seconds=DAY)
    assert (await one.is_due(), await two.is_due()) == (True, False)


async def test_after_a_kill_another_goes_on_within_minutes_however_rarely_one_is_due(
    world: World, tmp_path: Path
) -> None:
    """A pod that dies every day before its backup must not mean that there is none."""
    killed, next_one = on(world, tmp_path, "killed"), on(world, tmp_path, "next")
    assert await killed.is_due()
    assert not await next_one.is_due()
    world.advance(seconds=SOON)
    assert await next_one.is_due()


async def test_whoever_writes_a_long_one_keeps_the_duty(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, original = threading.Event(), backups._write

    async def long(database: str, path: Path, stop: threading.Event) -> Counted:
        await asyncio.to_thread(go_on.wait)
        return await original(database, path, stop)

    monkeypatch.setattr(backups, "_write", long)
    monkeypatch.setattr(backups, "RENEW_SECONDS", 0.01)
    writing, other = on(world, tmp_path, "writing"), on(world, tmp_path, "other")
    assert await writing.is_due()
    task = asyncio.create_task(writing.back_up())
    try:
        for _ in range(5):
            world.advance(seconds=SOON - 10)

            async def is_renewed() -> bool:
                async with world.ledger.engine.snapshot() as tx:
                    until = (await tx.rows("SELECT until_at FROM duties WHERE name = 'backup'"))[0][0]
                    return bool(until - await tx.now() > LEASE_MS - 10_000)

            await eventually(is_renewed)
            assert not await other.is_due()
    finally:
        go_on.set()
        path = await task
    assert made(tmp_path) == [path]


async def test_every_backup_restores_to_what_there_was(world: World, tmp_path: Path) -> None:
    """Into an empty database, with its history; only its owner may read it, and no pepper is inside."""
    for number in range(20):
        await world.post(f"s{number}")
    path = await on(world, tmp_path / "b", "x").back_up()
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    engine = await connect(f"sqlite:///{tmp_path}/other.db")
    try:
        await migrate(engine)
        done = await importing.restore(engine, snapshot.read(path, Wanted(backup=True, end=True)))
    finally:
        await engine.close()
    assert (done.added, addresses(path)) == (20, set(await world.stored()))
    with snapshot.opened(path) as file:
        key = (tmp_path / "pepper").read_text().strip().partition(":")[2]
        assert key
        assert key.encode() not in b"".join(file)


def test_the_newest_are_kept_and_nobody_elses_files_are_touched(tmp_path: Path) -> None:
    names = [f"berth-2026010{day}T000000Z.jsonl.gz" for day in range(1, 8)]
    for name in (*reversed(names), "berth-old.jsonl.gz", "notes.txt", names[0] + ".part"):
        (tmp_path / name).touch()
    assert tidy(tmp_path, 3) == 4
    assert [one.name for one in made(tmp_path)] == names[-3:]
    assert len(list(tmp_path.iterdir())) == 6
    assert tidy(tmp_path, 96) == 0


async def test_one_that_fails_is_told_counted_and_tried_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is a file at first."""
    folder = tmp_path / "backups"
    folder.write_text("in the way")
    told: list[dict[str, Any]] = []
    one = on(world, folder, "x", EventLog(told.append))
    monkeypatch.setattr(backups, "LOOK_SECONDS", 0.01)
    task = asyncio.create_task(one.back_up_forever())
    try:
        failures = world.api.metrics.backup_failures

        async def has_failed() -> bool:
            return bool(failures._value.get() >= 2)

        await eventually(has_failed)
        folder.unlink()

        async def is_made() -> bool:
            return any(event["event"]["message"] == "backed up" for event in told)

        await eventually(is_made)
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert told[0]["event"]["message"] == "backup failed"
    assert len(made(folder)) == 1
    assert world.api.metrics.backup_at._value.get() > 0


def test_a_running_api_makes_them_where_it_was_told_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    """`--backup-dir .` is a folder like any other; of its backups as many stay as were asked for."""
    flags = ("--backup-every", "1s", "--backup-dir", ".", "--backup-keep", "2")
    with api_process(tmp_path, *flags) as api:
        assert wait_until(lambda: len(made(tmp_path)) == 2, 60)
        first = made(tmp_path)[0]
        assert wait_until(lambda: not first.exists(), 60), "the oldest goes"
        api.kill()
    left = made(tmp_path)
    unfinished = tmp_path / "berth-20260101T000000Z.jsonl.gz.part"
    unfinished.write_bytes(b"what a killed one left")
    with closing(sqlite3.connect(tmp_path / "berth.db")) as file, file:
        assert file.execute("UPDATE duties SET until_at = 0").rowcount, "its time is over"
    with api_process(tmp_path, *flags) as again:
        assert wait_until(lambda: made(tmp_path)[-1] not in left, 60)
        assert again.stop() == 0
    assert not unfinished.exists()
    assert all(addresses(one) == set() for one in made(tmp_path))
