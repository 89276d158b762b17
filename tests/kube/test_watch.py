"""List, then watch, against a scripted server: every reason to list again, and none besides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from tests.kube.scripted import (
    CONFIGMAPS,
    END_OF_STREAM,
    STREAM_HEAD,
    Reply,
    Server,
    answer,
    bookmark,
    bytes_of,
    change,
    chunk,
    configmap,
    cut,
    error_event,
    listing,
    refusal,
    scripted,
    silence,
    stream,
)
from tests.kube.waiting import eventually

from berth.errors import Gone, NotFound, Unreachable
from berth.kube.client import Client, Event
from berth.kube.watch import WatchSettings, reflect

# Long silence in a script must not be taken for a fault where the test is not about that.
STEADY = WatchSettings(silence_seconds=30)


class FakeClock:
    """Time stands still unless somebody sleeps or a test moves it; a sleep takes no time at all."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Notes:
    """A sink that writes down what it is told and can be waited on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = asyncio.Event()

    def replace(self, items: list[dict[str, Any]], resource_version: str) -> None:
        self._note(f"replace {resource_version} {_names(items)}")

    def reset(self, items: list[dict[str, Any]], resource_version: str) -> None:
        self._note(f"reset {resource_version} {_names(items)}")

    def apply(self, type: str, obj: dict[str, Any]) -> None:
        self._note(f"{type} {obj['metadata']['name']}")

    def _note(self, line: str) -> None:
        self.lines.append(line)
        self._news.set()

    async def reach(self, *expected: str) -> None:
        async with asyncio.timeout(60):
            while self.lines[: len(expected)] != list(expected):
                assert len(self.lines) < len(expected), self.lines
                self._news.clear()
                await self._news.wait()


def _names(items: list[dict[str, Any]]) -> str:
    return ",".join(item["metadata"]["name"] for item in items)


class Run:
    """One reflection at work."""

    def __init__(self, server: Server, clock: FakeClock) -> None:
        self.server = server
        self.clock = clock
        self.notes = Notes()

    @property
    def asked(self) -> list[str]:
        """What the server was asked: list, revision or watch with its version."""
        return [_question(asked.path) for asked in self.server.asked]

    async def asked_for(self, *expected: str) -> None:
        await eventually(lambda: len(self.asked) >= len(expected))
        assert self.asked[: len(expected)] == list(expected)


def _question(path: str) -> str:
    query = dict(pair.split("=") for pair in path.partition("?")[2].split("&"))
    if "watch" in query:
        return f"watch {query['resourceVersion']}"
    return "revision" if query.get("limit") == "1" else "list"


@asynccontextmanager
async def reflecting(
    *script: Reply, settings: WatchSettings = STEADY, written: Callable[[], int] = lambda: 0
) -> AsyncIterator[Run]:
    async with scripted(*script, silence()) as server, Client(server.credentials()) as client:
        run = Run(server, FakeClock())
        task = asyncio.create_task(
            reflect(
                client,
                CONFIGMAPS,
                run.notes,
                namespace="default",
                written=written,
                clock=run.clock,
                settings=settings,
            )
        )
        try:
            yield run
        finally:
            task.cancel()
            await asyncio.wait([task])


A, B = configmap("a", 3), configmap("b", 4)
LIST = answer(200, listing(5, A))


# One watch


async def events_of(*script: Reply, **options: Any) -> list[Event]:
    async with scripted(*script) as server, Client(server.credentials()) as client:
        found = client.watch(CONFIGMAPS, "default", resource_version="5", timeout_seconds=60, **options)
        return [event async for event in found]


async def test_a_watch_yields_events_and_bookmarks_until_the_server_ends_it() -> None:
    said = stream(change("ADDED", B), bookmark(9)) + END_OF_STREAM
    assert await events_of(bytes_of(said)) == [
        Event("ADDED", B),
        Event("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": "9"}}),
    ]


async def test_a_watch_asks_for_bookmarks_from_a_version_for_a_time() -> None:
    ended = bytes_of(STREAM_HEAD + END_OF_STREAM)
    async with scripted(ended) as server, Client(server.credentials()) as client:
        async for _ in client.watch(
            CONFIGMAPS, resource_version="5", timeout_seconds=60.9, label_selector="a=b"
        ):
            pass
    assert server.asked[0].path == (
        "/api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=60"
        "&labelSelector=a%3Db"
    )


async def test_lines_may_be_cut_anywhere_and_be_of_any_length() -> None:
    big = configmap("big", 6, text="ü" * 700_000)
    line = orjson.dumps(change("ADDED", big)) + b"\n" + orjson.dumps(bookmark(9)) + b"\n"
    pieces = [chunk(line[start : start + 50_001]) for start in range(0, len(line), 50_001)]
    events = await events_of(bytes_of(STREAM_HEAD, *pieces, END_OF_STREAM))
    assert [event.type for event in events] == ["ADDED", "BOOKMARK"]
    assert events[0].object == big


@pytest.mark.parametrize(
    "broken",
    [
        cut(stream(change("ADDED", B))),
        cut(stream() + b"10\r\n{"),
        bytes_of(STREAM_HEAD + chunk(b'{"type":"ADDED","obj') + END_OF_STREAM),
        bytes_of(STREAM_HEAD + chunk(b"<html>\n") + END_OF_STREAM),
        bytes_of(STREAM_HEAD + chunk(b"[]\n") + END_OF_STREAM),
        bytes_of(STREAM_HEAD + chunk(b'{"type":"ADDED","object":7}\n') + END_OF_STREAM),
    ],
)
async def test_a_stream_that_is_cut_or_nonsense_is_unreachable(broken: Reply) -> None:
    with pytest.raises(Unreachable):
        await events_of(broken)


async def test_a_silent_stream_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="no answer in time"):
        await events_of(silence(stream(change("ADDED", B))), silence_seconds=0.05)


@pytest.mark.parametrize("event", [error_event(410, "Expired"), error_event(500, "InternalError")])
async def test_any_error_event_means_gone(event: dict[str, Any]) -> None:
    with pytest.raises(Gone):
        await events_of(bytes_of(stream(event) + END_OF_STREAM))


async def test_a_stream_faster_than_its_reader_waits_for_it() -> None:
    blob = "x" * 100_000
    said = stream(*(change("ADDED", configmap(f"c{number}", number + 6, text=blob)) for number in range(200)))
    async with scripted(bytes_of(said + END_OF_STREAM)) as server, Client(server.credentials()) as client:
        count = 0
        async for _ in client.watch(CONFIGMAPS, resource_version="5", timeout_seconds=60):
            count += 1
            await asyncio.sleep(0.001 if count % 50 == 0 else 0)
    assert count == 200


# List, then watch


async def test_it_lists_and_watches_from_the_lists_version() -> None:
    async with reflecting(LIST, silence(stream(change("ADDED", configmap("b", 6)), bookmark(9)))) as run:
        await run.notes.reach("replace 5 a", "ADDED b")
        assert run.asked == ["list", "watch 5"]


async def test_managed_fields_are_left_out() -> None:
    obj = configmap("a", 3)
    obj["metadata"]["managedFields"] = [{"manager": "x"}]
    seen: list[dict[str, Any]] = []

    class Keep(Notes):
        def replace(self, items: list[dict[str, Any]], resource_version: str) -> None:
            seen.extend(items)
            super().replace(items, resource_version)

    script = [answer(200, listing(5, obj)), silence()]
    async with scripted(*script) as server, Client(server.credentials()) as client:
        notes = Keep()
        task = asyncio.create_task(reflect(client, CONFIGMAPS, notes))
        await notes.reach("replace 5 a")
        task.cancel()
        await asyncio.wait([task])
    assert "managedFields" not in seen[0]["metadata"]


async def test_a_stream_that_ends_in_time_goes_on_from_the_last_version() -> None:
    ended = bytes_of(stream(change("ADDED", configmap("b", 6)), bookmark(9)) + END_OF_STREAM)
    async with reflecting(LIST, ended, answer(200, listing(12))) as run:
        await run.asked_for("list", "watch 5", "revision", "watch 9")
        assert run.notes.lines == ["replace 5 a", "ADDED b"]
        assert run.clock.slept == []


async def test_a_cut_stream_goes_on_from_the_last_version_without_a_list() -> None:
    async with reflecting(
        LIST, cut(stream(change("ADDED", configmap("b", 6)))), answer(200, listing(6))
    ) as run:
        await run.asked_for("list", "watch 5", "revision", "watch 6")
        assert len(run.clock.slept) == 1


@pytest.mark.parametrize(
    "end",
    [
        refusal(410, "Expired"),
        bytes_of(stream(error_event(410, "Expired")) + END_OF_STREAM),
        bytes_of(stream(error_event(500, "InternalError"))),
    ],
)
async def test_gone_and_error_events_mean_a_new_list(end: Reply) -> None:
    async with reflecting(LIST, end, answer(200, listing(9, B))) as run:
        await run.notes.reach("replace 5 a", "replace 9 b")
        await run.asked_for("list", "watch 5", "list", "watch 9")


async def test_a_silent_stream_means_a_new_list() -> None:
    settings = WatchSettings(silence_seconds=0.05)
    async with reflecting(LIST, silence(STREAM_HEAD), answer(200, listing(9, B)), settings=settings) as run:
        run.clock.now = asyncio.get_running_loop().time  # type: ignore[method-assign]
        await run.notes.reach("replace 5 a", "replace 9 b")
        assert run.asked[:3] == ["list", "watch 5", "list"]


@pytest.mark.parametrize("empty", [bytes_of(STREAM_HEAD + END_OF_STREAM), cut(STREAM_HEAD), cut()])
async def test_two_streams_without_progress_mean_a_new_list(empty: Reply) -> None:
    async with reflecting(LIST, empty, answer(200, listing(5)), empty, answer(200, listing(9, B))) as run:
        await run.notes.reach("replace 5 a", "replace 9 b")
        assert run.asked[:5] == ["list", "watch 5", "revision", "watch 5", "list"]
        assert len(run.clock.slept) == 2


async def test_an_event_whose_version_goes_back_restarts_the_sink() -> None:
    back = silence(stream(bookmark(9), change("MODIFIED", configmap("a", 7))))
    async with reflecting(LIST, back, answer(200, listing(11, B))) as run:
        await run.notes.reach("replace 5 a", "reset 11 b")
        await run.asked_for("list", "watch 5", "list", "watch 11")


async def test_a_store_whose_version_went_back_while_we_were_cut_off_restarts_the_sink() -> None:
    script = [LIST, cut(stream(bookmark(9))), answer(200, listing(2)), answer(200, listing(2, B))]
    async with reflecting(*script) as run:
        await run.notes.reach("replace 5 a", "reset 2 b")
        await run.asked_for("list", "watch 5", "revision", "list", "watch 2")


async def test_a_list_older_than_what_was_seen_restarts_the_sink() -> None:
    script = [LIST, bytes_of(stream(bookmark(9), error_event(410, "Gone"))), answer(200, listing(7, B))]
    async with reflecting(*script) as run:
        await run.notes.reach("replace 5 a", "reset 7 b")


@pytest.mark.parametrize("away", [[cut(), cut()], [refusal(500)], [refusal(503)]])
async def test_a_server_that_was_away_is_listed_again_whatever_its_version(away: list[Reply]) -> None:
    """It may be back from a backup, and have been written past what we know before it answered us."""
    script = [LIST, cut(stream(bookmark(9))), *away, answer(200, listing(12, B))]
    async with reflecting(*script) as run:
        await run.notes.reach("replace 5 a", "replace 12 b")
        await run.asked_for("list", "watch 5", *["revision"] * len(away), "list", "watch 12")


async def test_a_busy_server_is_not_made_busier_by_a_list() -> None:
    script = [LIST, cut(stream(bookmark(9))), refusal(429, retry_after="1"), answer(200, listing(9))]
    async with reflecting(*script) as run:
        await run.asked_for("list", "watch 5", "revision", "revision", "watch 9")


class Writes:
    """What our own writes were answered: once the server says what it has to say, a newer one is there."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._now = 0

    def __call__(self) -> int:
        return self._now

    def before(self, reply: Reply) -> Reply:
        async def late(line: Any) -> None:
            self._now = self._version
            await reply(line)

        return late


async def test_a_version_below_our_own_writes_restarts_the_sink() -> None:
    """The watch had not shown the write yet, so by its versions alone nothing went back."""
    writes = Writes(8)
    end = writes.before(cut(stream(bookmark(6))))
    async with reflecting(
        LIST, end, answer(200, listing(7)), answer(200, listing(7, B)), written=writes
    ) as run:
        await run.notes.reach("replace 5 a", "reset 7 b")
        await run.asked_for("list", "watch 5", "revision", "list", "watch 7")


async def test_a_write_answered_while_the_list_was_under_way_is_no_going_back() -> None:
    writes = Writes(99)
    gone = bytes_of(stream(bookmark(6), error_event(410, "Gone")))
    async with reflecting(LIST, gone, writes.before(answer(200, listing(7, B))), written=writes) as run:
        await run.notes.reach("replace 5 a", "replace 7 b")


async def test_a_kind_that_is_not_served_any_more_ends_it() -> None:
    missing = [refusal(404, "NotFound")] * 5
    async with scripted(*missing) as server, Client(server.credentials()) as client:
        with pytest.raises(NotFound):
            await reflect(client, CONFIGMAPS, Notes(), clock=FakeClock())


async def test_a_server_that_only_just_started_may_say_not_found_a_few_times() -> None:
    away = [refusal(404, "NotFound")] * 4
    async with reflecting(*away, LIST, refusal(410, "Expired"), *away, answer(200, listing(9, B))) as run:
        await run.notes.reach("replace 5 a", "replace 9 b")


async def test_versions_that_are_no_numbers_are_not_compared() -> None:
    def at(version: str) -> dict[str, Any]:
        return change("ADDED", {**B, "metadata": {**B["metadata"], "resourceVersion": version}})

    async with reflecting(LIST, silence(stream(at("xyz"), at("abc")))) as run:
        await run.notes.reach("replace 5 a", "ADDED b", "ADDED b")


@pytest.mark.parametrize(("seconds", "next_question"), [(539, "revision"), (661, "list")])
async def test_a_list_is_due_every_ten_minutes_give_or_take(seconds: float, next_question: str) -> None:
    async def lasting(line: Any) -> None:
        run.clock.time += seconds
        await line.say(stream(bookmark(9)) + END_OF_STREAM)

    async with reflecting(LIST, lasting, answer(200, listing(9, B))) as run:
        await run.asked_for("list", "watch 5", next_question)


async def test_a_stream_is_asked_to_end_when_the_next_list_is_due() -> None:
    settings = WatchSettings(relist_seconds=100, stream_seconds=10_000)
    async with reflecting(LIST, settings=settings) as run:
        await run.asked_for("list", "watch 5")
        asked = run.server.asked[1].path.partition("timeoutSeconds=")[2]
        assert 89 <= int(asked) <= 110


async def test_a_stream_that_outlives_its_time_is_left() -> None:
    async def endless(line: Any) -> None:
        await line.say(STREAM_HEAD)
        for number in range(6, 1000):
            run.clock.time += 60
            await line.say(chunk(orjson.dumps(bookmark(number)) + b"\n"))
            await asyncio.sleep(0)

    async with reflecting(LIST, endless, answer(200, listing(2000, B))) as run:
        await run.notes.reach("replace 5 a", "replace 2000 b")


async def test_failures_are_waited_out_longer_each_time_up_to_a_limit() -> None:
    script = [refusal(403, "Forbidden")] * 10
    settings = WatchSettings(backoff_seconds=0.1, longest_backoff_seconds=5)
    async with reflecting(*script, LIST, settings=settings) as run:
        await run.notes.reach("replace 5 a")
        bounds = [min(5, 0.1 * 2**number) for number in range(10)]
        assert all(
            0.5 * bound <= slept <= bound for slept, bound in zip(run.clock.slept, bounds, strict=True)
        )


async def test_a_server_that_asks_for_time_gets_it() -> None:
    async with reflecting(LIST, refusal(429, retry_after="7"), answer(200, listing(5))) as run:
        await run.asked_for("list", "watch 5", "revision", "watch 5")
        assert 7 <= run.clock.slept[0] <= 7.1


async def test_progress_makes_the_next_failure_a_first_one() -> None:
    again = cut(stream(bookmark(6)))
    script = [*[refusal(500)] * 5, LIST, again, answer(200, listing(6)), again, answer(200, listing(6))]
    async with reflecting(*script) as run:
        await run.asked_for(*["list"] * 6, "watch 5", "revision", "watch 6", "revision", "watch 6")
        assert run.clock.slept[4] > 0.5
        assert all(slept <= 0.1 for slept in run.clock.slept[5:])


async def test_a_filtered_list_and_watch_ask_for_the_same() -> None:
    async with scripted(LIST, silence()) as server, Client(server.credentials()) as client:
        notes = Notes()
        task = asyncio.create_task(
            reflect(client, CONFIGMAPS, notes, label_selector="a", field_selector="metadata.name=b")
        )
        await eventually(lambda: len(server.asked) == 2)
        task.cancel()
        await asyncio.wait([task])
    for asked in server.asked:
        assert "labelSelector=a&fieldSelector=metadata.name%3Db" in asked.path
