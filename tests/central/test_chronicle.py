"""D-16: every application event reaches Splunk, whoever made it: a request, the sweep, ROR, a command, or the
server itself.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import structlog
from tests.central.faults.telling import frame
from tests.support.central import CLUSTER, NAMESPACE, OTHER_SECRET, SECRET, World, request_body
from tests.support.eventually import eventually
from tests.support.started import Neighbour, api_process, neighbour
from typer.testing import CliRunner

from berth.central.integrations import history_feed
from berth.central.integrations.disk_queue import DiskQueue
from berth.central.integrations.event_log import EventLog
from berth.central.integrations.history_feed import HistoryFeed
from berth.cli.ledger import app
from berth.store.clusters import undo

Start = Callable[..., AbstractAsyncContextManager[World]]
A = "83.118.168.10/32"


@asynccontextmanager
async def spooling(path: Path, limit: int = 10_000) -> AsyncIterator[DiskQueue]:
    lost: list[int] = []
    spool = DiskQueue(path, limit, lost.append)
    try:
        yield spool
    finally:
        await spool.close()
    assert lost == []


async def told(spool: DiskQueue, teller: HistoryFeed) -> list[dict[str, Any]]:
    """What it adds to the queue, which is emptied."""
    while await teller.tell():
        pass
    kept = await spool.oldest(10_000)
    if kept:
        await spool.remove(kept[-1][0])
    return [orjson.loads(body) for _, body in kept]


async def everything(world: World) -> None:
    """All that can become of an address, in turn."""
    await world.post("x", address=A)
    await world.post("x", address=A, new_secret=OTHER_SECRET)
    await world.post("x", address=A, secret=OTHER_SECRET, retention=3)
    await world.post("y", address=A, secret=OTHER_SECRET, pending=True)
    await world.post("y", address=A, secret=OTHER_SECRET)
    await world.delete("x", address=A, secret=OTHER_SECRET, retention=3)
    await world.post("x", address=A, secret=OTHER_SECRET, retention=3)
    await world.release_cluster()
    await undo(world.ledger.engine, "cluster_id", CLUSTER)
    for name in ("x", "y"):
        await world.delete(name, address=A, secret=OTHER_SECRET)
    await world.sweep()


STORY = [
    *("registered x", "secret replaced x", "updated x", "joined y", "confirmed y", "released x"),
    *("recalled x", "marked x", "marked y", "undone x", "undone y", "released x", "released y"),
    *("left x", "left y", "freed "),
]


async def test_whatever_becomes_of_an_address_is_told_once_and_in_its_order(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_feed, "LEASE_MS", 600_000)
    async with spooling(tmp_path / "queue.db") as spool:
        first, second = (HistoryFeed(world.ledger.engine, spool, EventLog(spool.add), who) for who in "ab")
        await world.post("earlier", address="83.118.168.99", cluster="another")
        await first.begin()
        assert await told(spool, first) == [], "what was before Splunk is not told"
        await everything(world)
        assert await told(spool, second) == [], "one replica at a time does it"
        found = await told(spool, first)
        assert await told(spool, first) == []
    events = [one["event"] for one in found]
    story = [f"{one['message'].removeprefix('address ')} {one['service_name']}" for one in events]
    assert sorted(story) == sorted(STORY)
    assert story[:7] == STORY[:7]
    assert story[-1] == "freed "
    assert {one["kind"] for one in found} == {"app"}
    assert events[0] == {
        "level": "info",
        "message": "address registered",
        "caller": "central/chronicle",
        "pool": "inet/4",
        "address": "83.118.168.10",
        "service_name": "x",
        "namespace_id": NAMESPACE,
        "cluster_id": CLUSTER,
        "by": "",
    }
    assert [one["by"] for one in events if one["message"] == "address marked"] == ["cluster", "cluster"]
    times = [one["time"] for one in found]
    assert times == sorted(times)
    assert SECRET not in str(found)


async def test_changes_wait_in_the_history_while_the_queue_is_full(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are told once there is room, portion by portion, also by the next life."""
    monkeypatch.setattr(history_feed, "PORTION", 5)
    async with spooling(tmp_path / "queue.db", 20) as spool:
        teller = HistoryFeed(world.ledger.engine, spool, EventLog(spool.add), "one")
        await teller.begin()
        for number in range(12):
            await world.post(f"s{number}")
        seen = []
        while portion := await told(
            spool, HistoryFeed(world.ledger.engine, spool, EventLog(spool.add), "one")
        ):
            assert len(portion) <= 10
            seen += [one["event"]["service_name"] for one in portion]
        assert seen == [f"s{number}" for number in range(12)]


async def test_what_the_server_itself_does_is_told(tmp_path: Path) -> None:
    """Start, reloads, ROR's event, a command's undo, expiry and stop: from a real server to a real receiver
    that is away at first, and with a new life in between.
    """
    (tmp_path / "token").write_text("t")
    (tmp_path / "zones.yaml").write_text(ZONES)
    with neighbour("hec", tmp_path / "splunk") as splunk, neighbour("sse", tmp_path / "ror") as ror:
        splunk.say("mode", "refuse")
        flags = [
            *("--splunk-url", splunk.url, "--splunk-token-file", "token", "--splunk-index", "net"),
            *("--ror-url", ror.url, "--zones", "zones.yaml", "--sweep-seconds", "0.2"),
        ]
        with api_process(tmp_path, *flags) as api:
            async with aiohttp.ClientSession() as session:
                body = request_body("x", retention=1)
                assert (await session.post(api.url + "/v2/address", json=body)).status == 200
                ror.say("events", frame(1) + frame(2, "nobody") + "event: cluster.deleted\ndata: {}\n\n")
                await eventually(lambda: _undone(tmp_path))
                body = request_body("x", address="83.118.168.0")
                assert (await session.delete(api.url + "/v2/service", json=body)).status == 200
            (tmp_path / "zones.yaml").write_text("zones: 1")
            api.process.send_signal(signal.SIGHUP)
            await eventually(lambda: _logged(api.errors, "reload refused"))
            (tmp_path / "zones.yaml").write_text(ZONES)
            api.process.send_signal(signal.SIGHUP)
            await eventually(lambda: _logged(api.errors, "\treloaded"))
            assert api.stop() == 0
        splunk.say("mode", "ok")
        with api_process(tmp_path, *flags) as api:
            expected = {
                *("started", "reloaded", "stopping", "cluster event", "event without a cluster", "swept"),
                "reload refused, the old configuration stays",
                *(
                    f"address {word}"
                    for word in ("registered", "marked", "undone", "released", "left", "freed")
                ),
            }
            await eventually(lambda: _all_there(splunk, expected))
            assert api.stop() == 0
    for one in splunk.seen():
        assert (one["host"], one["source"], one["index"]) == ("ipam-api", "vitistack:ipam-api", "net")
        assert {"level", "message", "caller"} <= set(one["event"])


ZONES = "zones: [{name: inet, ipv4: [83.118.168.0/24]}]\n"


async def _undone(folder: Path) -> bool:
    words = ["--database", f"sqlite:///{folder}/berth.db", "undo", "--cluster", CLUSTER]
    done = await asyncio.to_thread(CliRunner().invoke, app, words)
    structlog.reset_defaults()  # the command configures the log of its process
    return done.exit_code == 0


async def _logged(file: Path, word: str) -> bool:
    return word in await asyncio.to_thread(file.read_text)


async def _all_there(splunk: Neighbour, expected: set[str]) -> bool:
    return expected <= {one["event"]["message"] for one in splunk.seen() if "app" in one["sourcetype"]}
