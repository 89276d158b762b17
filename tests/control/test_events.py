"""events: repetitions are counted, floods are bounded, warnings go first, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.support.fake_api import FakeApi, Link
from tests.support.virtual import now, run

from berth.control.event_queue import Type
from berth.control.events import EVENTS, Rates, Recorder
from berth.devcluster import DevCluster
from berth.errors import Forbidden, NotLeader
from berth.kube import auth
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.metrics import Metrics

PLENTY = Rates(
    per_second=1e6,
    burst=1000,
    normal_per_second=1e6,
    normal_burst=1000,
    object_per_second=1e6,
    object_burst=1000,
)


def claim(name: str = "c1", **meta: str) -> dict[str, Any]:
    full = {"name": name, "namespace": "default", "uid": f"uid-{name}", **meta}
    return {"apiVersion": "example.org/v1", "kind": "Claim", "metadata": full}


class Scene:
    def __init__(self, rates: Rates) -> None:
        self.server = FakeApi()
        self.link: Link = self.server.link()
        self.metrics = Metrics()
        self.recorder = Recorder(self.link, self.metrics, rates=rates)

    def dropped(self, cause: str) -> float:
        labels = {"cause": cause}
        return self.metrics.registry.get_sample_value("berth_events_dropped_total", labels) or 0

    def events(self) -> list[dict[str, Any]]:
        return [obj for (plural, _, _), obj in self.server.objects.items() if plural == EVENTS.plural]

    def messages(self) -> list[str]:
        return [event["message"] for event in self.events()]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.recorder.run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def play(story: Callable[[Scene], Awaitable[None]], rates: Rates = PLENTY) -> None:
    async def main() -> None:
        await story(Scene(rates))

    run(main())


def test_an_event_says_what_happened_to_which_object() -> None:
    async def story(scene: Scene) -> None:
        async with scene.running():
            scene.recorder.event(claim(), "Normal", "Bound", "got 10.0.0.1")
            await scene.recorder.drain(1)
        (event,) = scene.events()
        assert event["involvedObject"] == {
            "apiVersion": "example.org/v1",
            "kind": "Claim",
            "namespace": "default",
            "name": "c1",
            "uid": "uid-c1",
        }
        assert event["metadata"]["namespace"] == "default"
        assert event["metadata"]["name"].startswith("c1.")
        assert (event["type"], event["reason"], event["message"]) == ("Normal", "Bound", "got 10.0.0.1")
        assert (event["count"], event["source"]["component"]) == (1, "berth")
        assert event["firstTimestamp"] == event["lastTimestamp"]

    play(story)


def test_the_same_again_raises_the_count_of_the_event_that_is_there() -> None:
    async def story(scene: Scene) -> None:
        async with scene.running():
            for _ in range(3):
                scene.recorder.event(claim(), "Warning", "PoolExhausted", "no address is free")
                await scene.recorder.drain(1)
            scene.recorder.event(claim(), "Warning", "PoolExhausted", "another text")
            await scene.recorder.drain(1)
        assert sorted(event["count"] for event in scene.events()) == [1, 3]

    play(story)


def test_what_repeats_while_it_waits_is_written_once_with_its_count() -> None:
    async def story(scene: Scene) -> None:
        for _ in range(50):
            scene.recorder.event(claim(), "Warning", "PoolExhausted", "no address is free")
        async with scene.running():
            await scene.recorder.drain(1)
        assert [verb for verb, _ in scene.server.writes] == ["create"]
        assert scene.events()[0]["count"] == 50

    play(story)


def test_after_the_window_a_new_event_begins() -> None:
    async def story(scene: Scene) -> None:
        async with scene.running():
            for _ in range(2):
                scene.recorder.event(claim(), "Normal", "Bound", "x")
                await scene.recorder.drain(1)
                await asyncio.sleep(601)
        assert [event["count"] for event in scene.events()] == [1, 1]

    play(story)


def test_an_event_that_someone_removed_is_written_anew() -> None:
    async def story(scene: Scene) -> None:
        async with scene.running():
            scene.recorder.event(claim(), "Normal", "Bound", "x")
            await scene.recorder.drain(1)
            scene.server.objects.clear()
            scene.recorder.event(claim(), "Normal", "Bound", "x")
            await scene.recorder.drain(1)
        assert len(scene.events()) == 1

    play(story)


@pytest.mark.parametrize(("type", "burst", "rate"), [("Warning", 100, 20), ("Normal", 25, 5)])
def test_a_flood_is_written_at_the_rate_and_no_faster(type: Type, burst: int, rate: int) -> None:
    async def story(scene: Scene) -> None:
        for number in range(1000):
            scene.recorder.event(claim(f"c{number}"), type, "Bound", "x")
        async with scene.running():
            started_at = now()
            await asyncio.sleep(1)
            assert burst <= len(scene.events()) <= burst + rate + 1
            await asyncio.sleep(9)
            assert len(scene.events()) <= burst + rate * (now() - started_at) + 1
            await scene.recorder.drain(300)
            assert len(scene.events()) == 1000
            assert now() - started_at >= (1000 - burst) / rate - 1

    play(story, Rates())


def test_a_warning_does_not_wait_behind_good_news() -> None:
    async def story(scene: Scene) -> None:
        for number in range(100):
            scene.recorder.event(claim(f"c{number}"), "Normal", "Bound", "x")
        async with scene.running():
            await asyncio.sleep(1)
            scene.recorder.event(claim("late"), "Warning", "Exhausted", "no address is free")
            await asyncio.sleep(1)
            assert "no address is free" in scene.messages()
            assert len(scene.events()) < 50

    play(story, Rates())


def test_what_does_not_fit_is_dropped_oldest_first_and_counted() -> None:
    async def story(scene: Scene) -> None:
        for number in range(30):
            scene.recorder.event(claim(f"c{number}"), "Normal", "Bound", str(number))
        async with scene.running():
            await scene.recorder.drain(1)
        assert scene.messages() == [str(number) for number in range(20, 30)]
        assert scene.dropped("flood") == 20

    play(story, replace(PLENTY, waiting=10))


def test_warnings_go_first_and_are_not_driven_out() -> None:
    async def story(scene: Scene) -> None:
        for number in range(5):
            scene.recorder.event(claim(f"n{number}"), "Normal", "Bound", f"normal {number}")
        for number in range(8):
            scene.recorder.event(claim(f"w{number}"), "Warning", "Refused", f"warning {number}")
        scene.recorder.event(claim("late"), "Normal", "Bound", "late")
        async with scene.running():
            await scene.recorder.drain(1)
        assert scene.messages() == [f"warning {number}" for number in range(8)] + ["normal 4", "late"]
        assert scene.dropped("flood") == 4

    play(story, replace(PLENTY, waiting=10))


def test_only_the_newest_warnings_stay_when_there_is_nothing_else_to_drop() -> None:
    async def story(scene: Scene) -> None:
        for number in range(4):
            scene.recorder.event(claim(f"w{number}"), "Warning", "Refused", str(number))
        scene.recorder.event(claim(), "Normal", "Bound", "no place")
        async with scene.running():
            await scene.recorder.drain(1)
        assert scene.messages() == ["2", "3"]
        assert scene.dropped("flood") == 3

    play(story, replace(PLENTY, waiting=2))


def test_one_noisy_object_leaves_room_for_the_others_and_its_count_stays_true() -> None:
    async def story(scene: Scene) -> None:
        async with scene.running():
            for _ in range(12):
                scene.recorder.event(claim("noisy"), "Warning", "Refused", "again")
                await scene.recorder.drain(1)
            scene.recorder.event(claim("calm"), "Warning", "Refused", "once")
            await scene.recorder.drain(1)
            assert [event["count"] for event in scene.events()] == [10, 1]
            assert scene.dropped("object") == 2
            await asyncio.sleep(31)
            scene.recorder.event(claim("noisy"), "Warning", "Refused", "again")
            await scene.recorder.drain(1)
        assert scene.events()[0]["count"] == 13

    play(story, Rates())


def test_an_outage_is_waited_for_and_what_came_meanwhile_is_counted() -> None:
    async def story(scene: Scene) -> None:
        scene.link.down = True
        async with scene.running():
            scene.recorder.event(claim(), "Normal", "Bound", "x")
            await asyncio.sleep(1)
            scene.recorder.event(claim(), "Normal", "Bound", "x")
            await asyncio.sleep(4)
            scene.link.down = False
            await scene.recorder.drain(60)
        assert [event["count"] for event in scene.events()] == [2]
        assert scene.dropped("error") == 0

    play(story)


def test_what_comes_while_a_write_fails_is_counted_with_it() -> None:
    async def story(scene: Scene) -> None:
        scene.link.down = True
        async with scene.running():
            scene.recorder.event(claim(), "Normal", "Bound", "x")
            await asyncio.sleep(0.0005)  # the first try is under way
            scene.recorder.event(claim(), "Normal", "Bound", "x")
            await asyncio.sleep(1)
            scene.link.down = False
            await scene.recorder.drain(60)
        assert [event["count"] for event in scene.events()] == [2]

    play(story)


def test_an_outage_that_does_not_end_gives_up_what_it_held() -> None:
    async def story(scene: Scene) -> None:
        scene.link.down = True
        async with scene.running():
            scene.recorder.event(claim(), "Normal", "Bound", "x")
            await scene.recorder.drain(600)
        assert scene.dropped("error") == 1

    play(story)


@pytest.mark.parametrize("refusal", [Forbidden(403, "no"), NotLeader("no"), ZeroDivisionError()])
def test_a_refused_event_is_dropped_and_the_next_is_written(refusal: Exception) -> None:
    async def story(scene: Scene) -> None:
        async with scene.running():
            scene.link.refuses = refusal
            scene.recorder.event(claim("c1"), "Normal", "Bound", "x")
            await scene.recorder.drain(1)
            scene.link.refuses = None
            scene.recorder.event(claim("c2"), "Normal", "Bound", "y")
            await scene.recorder.drain(1)
        assert scene.messages() == ["y"]
        assert scene.dropped("error") == 1

    play(story)


def test_taking_a_note_needs_no_loop_turn_and_no_running_writer() -> None:
    async def story(scene: Scene) -> None:
        scene.link.hangs = True
        for number in range(10_000):
            scene.recorder.event(claim(f"c{number}"), "Normal", "Bound", "x")
        await scene.recorder.drain(3)
        assert scene.dropped("stop") == 1000

    play(story)


@pytest.mark.parametrize(
    ("about", "namespace", "involved"),
    [
        (Ref("Pool", "", "p1"), "default", {"kind": "Pool", "name": "p1"}),
        (Ref("Claim", "blue", "c1"), "blue", {"kind": "Claim", "namespace": "blue", "name": "c1"}),
        ({}, "default", {}),
    ],
)
def test_a_ref_or_an_incomplete_object_will_do(about: Any, namespace: str, involved: dict[str, str]) -> None:
    async def story(scene: Scene) -> None:
        async with scene.running():
            scene.recorder.event(about, "Normal", "Bound", "x")
            await scene.recorder.drain(1)
        (event,) = scene.events()
        assert event["metadata"]["namespace"] == namespace
        assert event["involvedObject"] == involved

    play(story)


def test_long_texts_are_cut_and_odd_names_are_made_usable() -> None:
    async def story(scene: Scene) -> None:
        async with scene.running():
            scene.recorder.event(claim("system:odd"), "Normal", "Bound", "x" * 5000)
            scene.recorder.event(claim("a" * 253), "Normal", "Bound", "y")
            await scene.recorder.drain(1)
        names = [event["metadata"]["name"] for event in scene.events()]
        assert names[0].startswith("berth.")
        assert max(map(len, names)) <= 253
        assert len(scene.messages()[0]) == 1024

    play(story)


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
async def test_the_real_api_server_takes_events_and_counts(cluster: DevCluster, namespace: str) -> None:
    maps = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c1", "namespace": namespace}}
    async with Client(auth.load(cluster.kubeconfig)) as client, asyncio.TaskGroup() as group:
        recorder = Recorder(client, Metrics())
        writing = group.create_task(recorder.run())
        for _ in range(3):
            recorder.event(maps, "Warning", "PoolExhausted", "no address is free")
            await recorder.drain(10)
        recorder.event(Ref("Namespace", "", namespace), "Normal", "Seen", "of cluster scope")
        await recorder.drain(10)
        stored = (await client.list(EVENTS, namespace)).items
        at_default = (await client.list(EVENTS, "default")).items
        writing.cancel()
    assert [(event["reason"], event["count"]) for event in stored] == [("PoolExhausted", 3)]
    assert namespace in [event["involvedObject"]["name"] for event in at_default]
