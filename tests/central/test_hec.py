"""V-203, V-204: Splunk's collector as a real process that refuses, hangs and dies, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.central import SECRET, Options, World
from tests.support.eventually import eventually
from tests.support.started import Neighbour, neighbour

from berth.central.integrations import splunk as hec
from berth.central.integrations.disk_queue import DiskQueue
from berth.central.integrations.event_log import EventLog
from berth.central.integrations.history_feed import HistoryFeed
from berth.central.integrations.splunk import Forwarder
from berth.central.metrics import ApiMetrics
from berth.central.settings import Splunk

Start = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def splunk(tmp_path: Path) -> Iterator[Neighbour]:
    with neighbour("hec", tmp_path / "splunk") as one:
        yield one


@asynccontextmanager
async def forwarding(
    splunk: Neighbour, tmp_path: Path, metrics: ApiMetrics | None = None
) -> AsyncIterator[DiskQueue]:
    (tmp_path / "token").write_text("hec-token")
    settings = Splunk(splunk.url, tmp_path / "token", "net", queue_file=tmp_path / "queue.db")
    metrics = metrics or ApiMetrics()
    spool = DiskQueue(settings.queue_file, 10_000, metrics.hec_dropped.inc)
    forwarder = Forwarder(settings, spool, metrics)
    tasks = [asyncio.create_task(forwarder.store_forever()), asyncio.create_task(forwarder.forward_forever())]
    try:
        yield spool
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await spool.close()


async def _arrived(splunk: Neighbour, count: int) -> bool:
    return len(splunk.seen()) >= count


async def test_v203_events_arrive_in_the_documented_shape(
    start: Start, splunk: Neighbour, tmp_path: Path
) -> None:
    """V-203"""
    async with forwarding(splunk, tmp_path) as spool, start(Options(journal=EventLog(spool.add))) as world:
        chronicle = HistoryFeed(world.ledger.engine, spool, world.api.journal, "test")
        await chronicle.begin()
        await world.post()
        assert await chronicle.tell()
        await eventually(lambda: _arrived(splunk, 2))
    kinds = sorted(one["sourcetype"] for one in splunk.seen())
    assert kinds == ["ipam-api:app", "ipam-api:http"]
    http = next(one for one in splunk.seen() if one["sourcetype"] == "ipam-api:http")
    assert (http["host"], http["source"], http["index"]) == ("ipam-api", "vitistack:ipam-api", "net")
    assert http["token"] == "Splunk hec-token"
    assert http["event"]["message"] == "http request"
    assert SECRET not in str(splunk.seen())


async def test_v204_a_hanging_splunk_slows_nobody_and_once_it_lives_has_every_event(
    start: Start, splunk: Neighbour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V-204"""
    monkeypatch.setattr(hec, "SEND_SECONDS", 3.0)
    splunk.say("mode", "hang")
    with capture_logs() as told:
        async with (
            forwarding(splunk, tmp_path) as spool,
            start(Options(journal=EventLog(spool.add))) as world,
        ):
            async with asyncio.timeout(60):  # if each waited for Splunk, they would take two minutes
                for number in range(40):
                    assert (await world.post(f"s{number}")).status == 200
            await eventually(lambda: _told(told, "TimeoutError"))
            splunk.say("mode", "ok")
            await eventually(lambda: _empty(spool))
    names = {one["event"]["body"]["service"]["service_name"] for one in splunk.seen()}
    assert names == {f"s{number}" for number in range(40)}


async def test_refusal_death_and_our_own_restart_lose_no_event(splunk: Neighbour, tmp_path: Path) -> None:
    splunk.say("mode", "refuse")
    async with forwarding(splunk, tmp_path) as spool:
        for number in range(500):
            spool.add({"kind": "app", "time": 1.0, "event": {"n": number}})
    splunk.say("mode", "die")
    async with forwarding(splunk, tmp_path) as spool:
        spool.add({"kind": "app", "time": 1.0, "event": {"n": 500}})
        await eventually(lambda: _dead(splunk))
    splunk.kill()
    splunk.say("mode", "ok")
    splunk.start()
    async with forwarding(splunk, tmp_path):
        await eventually(lambda: _arrived(splunk, 501))
    assert sorted({one["event"]["n"] for one in splunk.seen()}) == list(range(501))


async def _dead(splunk: Neighbour) -> bool:
    return splunk.process is not None and splunk.process.poll() is not None


async def test_what_the_queue_cannot_hold_is_counted(tmp_path: Path) -> None:
    lost: list[int] = []
    spool = DiskQueue(tmp_path / "queue.db", 10, lost.append)
    for number in range(25):
        spool.add({"n": number})
    await spool.store()
    assert (sum(lost), spool.length) == (15, 10)
    await spool.remove((await spool.oldest(4))[-1][0])
    assert spool.length == 6
    await spool.close()
    again = DiskQueue(tmp_path / "queue.db", 10, lost.append)
    assert again.length == 6
    await again.close()


async def test_a_cancelled_writer_loses_nothing(tmp_path: Path) -> None:
    """A clean stop cancels it at any moment; what it had in hand is in the file, or still gathered."""
    lost: list[int] = []
    spool = DiskQueue(tmp_path / "queue.db", 100_000, lost.append)
    for turn in range(50):
        for number in range(100):
            spool.add({"n": number})
        task = asyncio.create_task(spool.store())
        for _ in range(turn % 4):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (spool.length, lost) == (5000, [])
    await spool.close()


async def test_an_event_that_splunk_never_takes_does_not_stop_the_others(
    splunk: Neighbour, tmp_path: Path
) -> None:
    splunk.say("mode", "picky")
    async with forwarding(splunk, tmp_path) as spool:
        for word in ("one", "poison", "two"):
            EventLog(spool.add).app(word, "test")
        await eventually(lambda: _arrived(splunk, 2))
        await eventually(lambda: _empty(spool))
    assert [one["event"]["message"] for one in splunk.seen()] == ["one", "two"]


async def test_a_receiver_that_takes_small_bodies_only_gets_the_events_one_by_one(
    splunk: Neighbour, tmp_path: Path
) -> None:
    """And a token file that is no text for a moment ends nothing."""
    splunk.say("mode", "small")
    metrics = ApiMetrics()
    with capture_logs() as told:
        async with forwarding(splunk, tmp_path, metrics=metrics) as spool:
            (tmp_path / "token").write_bytes(b"\xff")
            for word in ("one", "x" * 1000, "two"):
                EventLog(spool.add).app(word, "test")
            await eventually(lambda: _told(told, "UnicodeDecodeError"))
            (tmp_path / "token").write_text("hec-token")
            await eventually(lambda: _empty(spool))
    assert [one["event"]["message"] for one in splunk.seen()] == ["one", "two"]
    assert "berth_splunk_sent_total 2.0" in metrics.text().decode()
    assert "berth_splunk_dropped_total 1.0" in metrics.text().decode()


async def _told(told: list[MutableMapping[str, Any]], cause: str) -> bool:
    return any(one.get("cause") == cause for one in told)


async def _empty(spool: DiskQueue) -> bool:
    return spool.length == 0
