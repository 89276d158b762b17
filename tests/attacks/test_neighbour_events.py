"""A stream of cluster events that means harm: what ROR, or who stands in its place, tries."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from tests.central.faults.telling import frame, listening, results
from tests.support.central import World, running
from tests.support.eventually import eventually
from tests.support.started import Neighbour, neighbour

from berth.central.integrations.ror import MARK, Listener
from berth.central.integrations.sse import Endless, EventParser, ServerEvent
from berth.central.metrics import ApiMetrics
from berth.central.settings import Ror
from berth.store import kv

DELETED = 'event: cluster.deleted\ndata: {{"cluster_id": "{}"}}\n\n'


@pytest_asyncio.fixture
async def world(database: str, tmp_path: Path) -> AsyncIterator[World]:
    async with running(database, tmp_path / "pepper") as one:
        yield one


@pytest.fixture
def ror(tmp_path: Path) -> Iterator[Neighbour]:
    with neighbour("sse", tmp_path / "ror") as one:
        yield one


async def taken(world: World, count: int) -> None:
    """One address for each of the clusters c0, c1, …"""
    for number in range(count):
        await world.post(f"s{number}", address=f"83.118.168.{20 + number}", cluster=f"c{number}")


async def released(world: World, count: int) -> list[int]:
    found = []
    for number in range(count):
        entries = await world.entries(f"83.118.168.{20 + number}")
        found += [number] if not entries[f"s{number}"].active else []
    return found


@pytest.mark.parametrize(
    "hostile", ["4\x017", "\x7f", "æ", "7" * 5000], ids=["control", "delete", "word", "long"]
)
async def test_an_event_id_that_is_no_header_ends_the_stream(
    world: World, ror: Neighbour, tmp_path: Path, hostile: str
) -> None:
    """It must count once, and the next connection, also after a restart, must come and resume before it."""
    await taken(world, 3)
    first = frame(1, "c0") + f"id: {hostile}\n" + DELETED.format("c1")
    async with listening(world, ror, tmp_path):
        ror.say("events", first)
        await eventually(lambda: _released(world, [0, 1]))
        await eventually(lambda: _done(world, 2))
        ror.say("cut", "now")
        await eventually(lambda: _connections(ror, 2))
    async with listening(world, ror, tmp_path):
        await eventually(lambda: _connections(ror, 3))
        ror.say("events", first + frame(3, "c2"))
        await eventually(lambda: _released(world, [0, 1, 2]))
    assert [one["last"] for one in ror.seen()] == ["", "1", "1"]


async def _released(world: World, wanted: list[int]) -> bool:
    return await released(world, 3) == wanted


async def _done(world: World, count: int) -> bool:
    return results(world, "released") >= count


async def _connections(ror: Neighbour, count: int) -> bool:
    return len(ror.seen()) >= count


async def test_a_bad_id_that_an_older_version_kept_ends_the_stream(
    world: World, ror: Neighbour, tmp_path: Path
) -> None:
    """What is in the database already must not keep us from connecting."""
    await taken(world, 1)
    async with world.ledger.engine.transaction() as tx:
        await kv.set_mark(tx, MARK, "4\x017")
    async with listening(world, ror, tmp_path):
        ror.say("events", frame(5, "c0"))
        await eventually(lambda: _done(world, 1))
    assert [one["last"] for one in ror.seen()] == [""]


async def test_a_hostile_id_is_repeated_to_release_a_cluster_again(
    world: World, ror: Neighbour, tmp_path: Path
) -> None:
    """It is known again, although it is never sent back."""
    await taken(world, 1)
    again = "id: 4\x017\n" + DELETED.format("c0")
    async with listening(world, ror, tmp_path):
        ror.say("events", again)
        await eventually(lambda: _done(world, 1))
        await world.post("s0", address="83.118.168.20", cluster="c0")
        ror.say("events", again + again)
        await eventually(lambda: _repeated(world))
    assert await released(world, 1) == []


async def _repeated(world: World) -> bool:
    return results(world, "repeated") > 0


@pytest.mark.parametrize("chunk", [b"\n" * 262_144, b"\r" * 262_144, b"data: x" + b"\n" * 262_137])
def test_lines_without_end_hold_up_the_event_loop(chunk: bytes) -> None:
    """A quarter of a megabyte of line ends took 1.8 seconds."""
    began = time.process_time()
    list(EventParser().feed(chunk))
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize("line", [b"data\n", b"data:\n", b":\n", b"a\n", b"data: 1234567890\n"])
def test_a_frame_of_endless_lines_fills_the_memory(line: bytes) -> None:
    """Empty data lines were kept without bound; now the frame is dropped, and the next one comes."""
    parser = EventParser()
    tracemalloc.start()
    try:
        for _ in range(40):
            assert list(parser.feed(line * 1000)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
    found = list(parser.feed(b"\ndata: ok\n\n"))
    assert found == [ServerEvent("message", "ok", "")]


def test_a_frame_that_never_ends_is_read_for_ever() -> None:
    """After some megabytes the connection is given up."""
    parser = EventParser()
    with pytest.raises(Endless):
        [event for _ in range(1000) for event in parser.feed(b"data: " + b"x" * 16_000)]


async def test_a_stream_of_one_endless_frame_is_opened_again_and_again(world: World) -> None:
    """The connection ends, and the next one comes after the longest pause."""

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        writer.write(b":" + b"x" * 5_000_000)
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with capture_logs() as told:
        listener = Listener(Ror(url), world.ledger.engine, ApiMetrics())
        task = asyncio.create_task(listener.listen_forever())
        await eventually(lambda: _any(told))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    server.close()
    assert (told[0]["cause"], told[0]["pause_seconds"]) == ("Endless", 60.0)


async def _any(told: Sequence[object]) -> bool:
    return bool(told)


async def test_more_clusters_go_by_way_of_several_replicas_and_restarts(
    database: str, world: World, ror: Neighbour, tmp_path: Path
) -> None:
    """The hour's number is the ledger's: two replicas share it, and a restart does not begin it anew."""
    await taken(world, 8)
    with neighbour("sse", tmp_path / "second") as second:
        async with running(database, tmp_path / "pepper") as replica:
            ror.say("events", "".join(frame(number, f"c{number}") for number in range(4)))
            second.say("events", "".join(frame(number, f"c{number}") for number in range(4, 8)))
            async with (
                listening(world, ror, tmp_path, clusters_per_hour=3),
                listening(replica, second, tmp_path, clusters_per_hour=3),
            ):
                await eventually(lambda: _held_back(world, replica))
            assert len(await released(world, 8)) == 3
    async with running(database, tmp_path / "pepper") as restarted:
        async with listening(restarted, ror, tmp_path, clusters_per_hour=3):
            ror.say("replay", "yes")
            await eventually(lambda: _held_back(restarted))
        assert len(await released(world, 8)) == 3
        restarted.advance(seconds=3601)
        async with listening(restarted, ror, tmp_path, clusters_per_hour=3):
            await eventually(lambda: _done(restarted, 1))
    assert len(await released(world, 8)) > 3


async def _held_back(*worlds: World) -> bool:
    return all(results(one, "held back") for one in worlds)
