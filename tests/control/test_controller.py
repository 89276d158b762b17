"""The controller on fake time: what a reconcile raises or returns decides when its ref comes again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from structlog.testing import capture_logs
from tests.support.virtual import now, run

from berth.control.controller import Controller
from berth.control.outcome import DONE, After, Outcome
from berth.errors import (
    ApiDown,
    ApiRefused,
    BerthError,
    Forbidden,
    NotLeader,
    StoreDown,
    TooManyRequests,
    Unreachable,
)
from berth.kube.meta import Ref
from berth.metrics import Metrics

A, B = Ref("Thing", "ns", "a"), Ref("Thing", "ns", "b")


class Desk:
    """A reconcile that does what its ref is told to do, and notes when."""

    def __init__(self, at_once: int = 64) -> None:
        self.metrics = Metrics()
        clock = asyncio.get_running_loop().time
        self.controller = Controller("things", self.reconcile, self.metrics, at_once=at_once, clock=clock)
        self.answers: dict[Ref, list[Exception | Outcome]] = {}
        self.passes: list[tuple[Ref, float]] = []
        self.running = self.most = 0
        self.seconds = 0.0  # a pass takes so long

    async def reconcile(self, ref: Ref) -> Outcome:
        self.passes.append((ref, now()))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        answers = self.answers.get(ref, [])
        answer = answers.pop(0) if answers else DONE
        if isinstance(answer, Exception):
            raise answer
        return answer

    def times(self, ref: Ref) -> list[float]:
        return [at for passed, at in self.passes if passed == ref]

    def counted(self, result: str) -> float:
        labels = {"controller": "things", "result": result}
        return self.metrics.registry.get_sample_value("berth_reconcile_seconds_count", labels) or 0.0


def play(story: Callable[[Desk], Awaitable[None]], at_once: int = 64) -> None:
    async def main() -> None:
        desk = Desk(at_once)
        task = asyncio.create_task(desk.controller.run())
        await story(desk)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert desk.running == 0, "no pass outlives its controller"

    run(main())


def test_a_ref_is_reconciled_once_and_rests() -> None:
    async def story(desk: Desk) -> None:
        desk.controller.add(A)
        desk.controller.add(A)
        await asyncio.sleep(1000)
        assert desk.passes == [(A, 0.0)]
        assert desk.counted("done") == 1

    play(story)


def test_an_outcome_asks_for_another_look() -> None:
    async def story(desk: Desk) -> None:
        desk.answers[A] = [After(30.0)]
        desk.controller.add(A)
        await asyncio.sleep(1000)
        assert desk.times(A) == [0.0, 30.0]

    play(story)


@pytest.mark.parametrize("error", [Unreachable("cut"), Forbidden(403, "no")])
def test_what_the_server_refuses_comes_back_after_growing_pauses(error: Exception) -> None:
    async def story(desk: Desk) -> None:
        desk.answers[A] = [error] * 6
        desk.controller.add(A)
        await asyncio.sleep(1000)
        times = desk.times(A)
        pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert len(pauses) == 6
        assert all(0.75 * 0.05 * 2**n <= pause <= 0.05 * 2**n + 1e-6 for n, pause in enumerate(pauses))
        assert (desk.counted("retry"), desk.counted("done")) == (6, 1)

    play(story)


@pytest.mark.parametrize("error", [ApiDown("cut"), ApiRefused(409, "full"), StoreDown("busy")])
def test_whatever_may_pass_comes_back_and_is_no_bug(error: BerthError) -> None:
    """Of any kind: the type says so. Not sooner than it asks for, and later each time."""

    async def story(desk: Desk) -> None:
        desk.answers[A] = [error] * 9
        desk.controller.add(A)
        with capture_logs() as logs:
            await asyncio.sleep(1000)
        pauses = [later - earlier for earlier, later in itertools.pairwise(desk.times(A))]
        assert len(pauses) == 9
        assert min(pauses) >= (error.retry_after_seconds or 0.0)
        assert pauses[-1] > 9.0
        assert {one["log_level"] for one in logs} == {"debug"}
        assert (desk.counted("retry"), desk.counted("error")) == (9, 0)

    play(story)


def test_success_makes_the_next_failure_a_first_one() -> None:
    async def story(desk: Desk) -> None:
        desk.answers[A] = [*[Unreachable("cut")] * 5, DONE, Unreachable("cut")]
        desk.controller.add(A)
        await asyncio.sleep(100)
        desk.controller.add(A)
        await asyncio.sleep(100)
        assert desk.times(A)[-1] - desk.times(A)[-2] <= 0.05 + 1e-6

    play(story)


def test_a_server_that_asks_for_time_gets_it_whatever_happens_to_the_object() -> None:
    async def story(desk: Desk) -> None:
        desk.answers[A] = [TooManyRequests(429, "busy", retry_after_seconds=7.0)]
        desk.controller.add(A)
        for _ in range(100):
            await asyncio.sleep(0.1)
            desk.controller.add(A)
        assert desk.times(A)[1] >= 7.0
        assert len([at for at in desk.times(A) if at < 7.0]) == 1

    play(story)


def test_a_bug_is_told_and_tried_again_slowly_and_holds_up_nobody_else() -> None:
    async def story(desk: Desk) -> None:
        desk.answers[A] = [KeyError("spec")] * 1000
        with capture_logs() as lines:
            desk.controller.add(A)
            for _ in range(10):
                desk.controller.add(B)
                await asyncio.sleep(1.0)
        assert len(desk.times(B)) == 10
        assert 2 <= len(desk.times(A)) <= 10
        assert lines[0]["log_level"] == "error"
        assert "KeyError" in lines[0]["error"]
        assert desk.counted("error") == len(desk.times(A))

    play(story)


def test_no_more_passes_run_at_once_than_allowed_and_a_ref_never_twice() -> None:
    async def story(desk: Desk) -> None:
        desk.seconds = 1.0
        for number in range(10):
            desk.controller.add(Ref("Thing", "ns", str(number)))
        await asyncio.sleep(0.5)
        assert desk.running == 3
        for number in range(10):
            desk.controller.add(Ref("Thing", "ns", str(number)))
        await asyncio.sleep(100)
        assert desk.most == 3
        assert len(desk.passes) == 13  # the three at work were asked for again
        assert len({ref for ref, _ in desk.passes}) == 10

    play(story, at_once=3)


def test_a_lost_lease_ends_everything() -> None:
    async def main() -> None:
        desk = Desk()
        desk.seconds = 1.0
        desk.answers[A] = [NotLeader("another leads")]
        desk.controller.add(A)
        desk.controller.add(B, 0.5)
        with pytest.raises(ExceptionGroup) as caught:
            await desk.controller.run()
        assert caught.value.subgroup(NotLeader) is not None
        assert desk.running == 0
        assert now() == 1.0

    run(main())
