"""V-194, V-195, V-196: ROR's events, from a real process that restarts, repeats itself and talks nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.central.faults.telling import A, active, forged_events, frame, listening, populate, results
from tests.support.central import World
from tests.support.eventually import eventually
from tests.support.started import Neighbour, neighbour

from berth.central.integrations.ror import Listener, backoff_of, cluster_of, unwrapped
from berth.central.integrations.sse import EventParser, ServerEvent
from berth.central.metrics import ApiMetrics
from berth.central.settings import Ror
from berth.store.engine import connect
from berth.store.migrate import migrate

Start = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture
def ror(tmp_path: Path) -> Iterator[Neighbour]:
    with neighbour("sse", tmp_path / "ror") as one:
        yield one


async def test_v194_an_event_releases_the_clusters_services(
    world: World, ror: Neighbour, tmp_path: Path
) -> None:
    """V-194"""
    await populate(world)
    async with listening(world, ror, tmp_path):
        ror.say("events", ": hello\n\nevent: connection.id\ndata: 1\n\n" + frame(1))
        await eventually(lambda: _is(world, ["y", "z"]))
        await eventually(lambda: _counted(world, "released"))
    assert ror.seen()[0] == {"last": "", "key": "ror-key"}
    assert (await world.entries(A))["x"].marked_by == "ror"
    assert results(world, "ignored", "connection.id") == 1


async def _is(world: World, names: list[str]) -> bool:
    return await active(world) == names


async def test_v195_after_a_restart_of_the_server_later_events_work(
    world: World, ror: Neighbour, tmp_path: Path
) -> None:
    """V-195: and it resumes with Last-Event-ID, so that nothing between is lost."""
    await populate(world)
    async with listening(world, ror, tmp_path):
        ror.say("events", frame(41, "nobody"))
        await eventually(lambda: _counted(world, "unknown"))
        ror.kill()
        ror.start()
        await eventually(lambda: _connected_again(ror))
        ror.say("events", frame(41, "nobody") + frame(42))
        await eventually(lambda: _is(world, ["y", "z"]))
    assert ror.seen()[-1]["last"] == "41"


async def _counted(world: World, result: str) -> bool:
    return results(world, result) > 0


async def _connected_again(ror: Neighbour) -> bool:
    return len(ror.seen()) > 1


async def test_v196_a_deny_flag_toggled_off_counts(world: World, ror: Neighbour, tmp_path: Path) -> None:
    """V-196"""
    await populate(world)
    await world.post("y", address=A, deny=False)
    async with listening(world, ror, tmp_path):
        ror.say("events", frame(1))
        await eventually(lambda: _is(world, ["z"]))


async def test_t27_replayed_forged_and_broken_events_change_nothing(
    world: World, ror: Neighbour, tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T27: 1,000 events that must not count, among them one that counts once."""
    tried(await forged_events(world, ror, tmp_path))


async def test_t27_more_deleted_clusters_than_can_be_true_are_not_believed(
    world: World, ror: Neighbour, tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T27: a flood stops at the cap; what follows waits, and nothing more is marked."""
    for number in range(5):
        await world.post(f"s{number}", address=f"83.118.168.{20 + number}", cluster=f"c{number}")
    async with listening(world, ror, tmp_path, clusters_per_hour=3):
        ror.say("events", "".join(frame(number, f"c{number}") for number in range(5)))
        await eventually(lambda: _counted(world, "held back"))
    marked = [not (await world.entries(f"83.118.168.{20 + n}"))[f"s{n}"].active for n in range(5)]
    assert marked == [True, True, True, False, False]
    tried(len(marked))


async def test_a_stream_that_breaks_comes_back_as_soon_as_before(tmp_path: Path) -> None:
    """However often it broke: the pause only grows while there is no connection at all."""

    async def broken(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\nretry: "
        )
        writer.write(b"9" * 400 + b"\nretry: 0\n\n")
        writer.close()

    engine = await connect(f"sqlite:///{tmp_path}/berth.db")
    await migrate(engine)
    server = await asyncio.start_server(broken, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with capture_logs() as told:
        listener = Listener(Ror(f"http://127.0.0.1:{port}"), engine, ApiMetrics())
        task = asyncio.create_task(listener.listen_forever())
        await eventually(lambda: _true(len(told) >= 4 or task.done()))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    server.close()
    await engine.close()
    assert {(one["event"], one["pause_seconds"]) for one in told} == {("event stream lost", 0.5)}


async def _true(value: bool) -> bool:
    return value


@pytest.mark.parametrize(("retry_ms", "seconds"), [(None, 0.5), (0, 0.5), (3000, 3.0), (999_999_999, 60.0)])
def test_a_pause_is_as_the_server_asks_within_reason(retry_ms: int | None, seconds: float) -> None:
    assert backoff_of(retry_ms).delay(0) == seconds


@pytest.mark.parametrize(
    "event",
    [
        ServerEvent("cluster.deleted", '{"cluster_id": "abc"}', ""),
        ServerEvent("cluster.deleted", '{"clusterId": "abc"}', ""),
        ServerEvent("cluster.deleted", '{"uid": "abc"}', ""),
        ServerEvent("cluster.deleted", '"abc"', ""),
        ServerEvent("cluster.deleted", "abc", ""),
        ServerEvent("message", '{"event": "cluster.deleted", "data": {"id": "abc"}}', ""),
        ServerEvent("message", '{"event": "cluster.deleted", "data": "{\\"id\\": \\"abc\\"}"}', ""),
        ServerEvent("message", '{"event": "cluster.deleted", "data": "abc"}', ""),
    ],
)
def test_the_cluster_is_found_in_every_documented_form(event: ServerEvent) -> None:
    name, data = unwrapped(event)
    assert (name, cluster_of(data)) == ("cluster.deleted", "abc")


STREAM = (
    ": c\r\nid: 7\r\nretry: 250\r\nevent: a\r\ndata: 1\r\ndata: 2\r\n\r\ndata: x\n\n\rdata: y\r\rid\ndata\n\n"
)


@given(st.lists(st.integers(0, len(STREAM))))
def test_frames_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    parser, found, raw = EventParser(), [], STREAM.encode()
    edges = [0, *sorted(cuts), len(raw)]
    for first, last in pairwise(edges):
        found += list(parser.feed(raw[first:last]))
    assert [(one.event, one.data) for one in found] == [
        ("a", "1\n2"),
        ("message", "x"),
        ("message", "y"),
        ("message", ""),
    ]
    assert parser.retry_ms == 250


@given(st.binary(max_size=2000))
def test_garbage_never_breaks_the_parser(raw: bytes) -> None:
    list(EventParser().feed(raw))


def test_only_a_frames_own_id_tells_that_it_was_seen_before() -> None:
    """The last id stays for `Last-Event-ID`; two frames without one are two events."""
    raw = b"id: greeting\ndata: hello\n\ndata: one\n\ndata: two\n\n"
    found = list(EventParser().feed(raw))
    assert [(one.id, one.own_id) for one in found] == [
        ("greeting", "greeting"),
        ("greeting", ""),
        ("greeting", ""),
    ]


def test_endless_lines_are_dropped_and_later_events_still_come() -> None:
    parser = EventParser()
    assert list(parser.feed(b"data: " + b"x" * 200_000)) == []
    assert list(parser.feed(b"x\n\ndata: ok\n\n")) == [ServerEvent("message", "ok", "")]
