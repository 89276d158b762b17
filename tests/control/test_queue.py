"""The work queue under simulated time: no ref twice at once, none lost, lanes in turn."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from tests.support.virtual import run

from berth.backoff import Backoff
from berth.control.queue import Queue


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> Queue[str]:
    return Queue(clock, draw=lambda: 0.0)


def test_a_ref_added_twice_is_worked_on_once(queue: Queue[str]) -> None:
    queue.add("a")
    queue.add("a")
    assert queue.take() == "a"
    assert queue.take() is None


def test_a_ref_added_while_worked_on_comes_again_afterwards(queue: Queue[str]) -> None:
    queue.add("a")
    queue.take()
    queue.add("a")
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a"


def test_a_delayed_ref_becomes_ready_when_its_time_has_come(queue: Queue[str], clock: Clock) -> None:
    queue.add("a", 5.0)
    assert queue.take() is None
    clock.now = 5.0
    assert queue.take() == "a"


def test_the_earlier_of_two_wishes_wins(queue: Queue[str], clock: Clock) -> None:
    queue.add("a", 5.0)
    queue.add("a", 1.0)
    queue.add("a", 9.0)
    clock.now = 1.0
    assert queue.take() == "a"
    queue.done("a")
    clock.now = 20.0
    assert queue.take() is None


def test_an_immediate_wish_replaces_a_delayed_one(queue: Queue[str], clock: Clock) -> None:
    queue.add("a", 5.0)
    queue.add("a")
    assert queue.take() == "a"
    queue.done("a")
    clock.now = 6.0
    assert queue.take() is None


def test_failures_in_a_row_wait_longer_and_success_starts_over(queue: Queue[str]) -> None:
    delays = [queue.retry("a") for _ in range(3)]
    assert delays == [0.05, 0.1, 0.2]
    queue.succeed("a")
    assert queue.retry("a") == 0.05


def test_backoff_never_passes_its_ceiling_and_jitter_only_shortens() -> None:
    backoff = Backoff(first_seconds=1.0, most_seconds=8.0, jitter=0.5)
    assert backoff.delay(10_000, 0.0) == 8.0
    assert backoff.delay(3, 1.0) == 4.0


def test_refs_of_one_lane_are_worked_on_in_turn(clock: Clock) -> None:
    queue: Queue[str] = Queue(clock, lane_of=lambda key: key[0])
    for key in ("a1", "a2", "b1"):
        queue.add(key)
    assert queue.take() == "a1"
    assert queue.take() == "b1"
    assert queue.take() is None
    queue.done("a1")
    assert queue.take() == "a2"


def test_a_ref_that_moves_to_another_lane_leaves_the_one_it_entered(clock: Clock) -> None:
    lanes = {"a": "one", "b": "one", "c": "one"}
    queue: Queue[str] = Queue(clock, lane_of=lambda key: lanes[key])
    for key in ("a", "b", "c"):
        queue.add(key)
    assert (queue.take(), queue.take()) == ("a", None)
    lanes.update(a="two", b="two")
    queue.done("a")
    assert (queue.take(), queue.take()) == ("b", "c")


def test_an_event_cuts_a_backoff_short_but_not_a_pause_the_server_asked_for(
    queue: Queue[str], clock: Clock
) -> None:
    queue.add("a")
    queue.take()
    queue.retry("a", at_least=5.0)
    queue.add("a")  # while it is worked on
    queue.done("a")
    queue.add("a")  # and afterwards
    queue.add("a", 2.0)
    clock.now = 4.9
    assert queue.take() is None
    clock.now = 5.0
    assert queue.take() == "a"
    queue.retry("a")
    queue.done("a")
    queue.add("a")
    assert queue.take() == "a"
    queue.done("a")
    assert (queue.take(), len(queue)) == (None, 0)


def test_success_ends_a_pause_that_was_asked_for(queue: Queue[str]) -> None:
    queue.retry("a", at_least=5.0)
    queue.succeed("a")
    queue.add("a")
    assert queue.take() == "a"


def test_a_ref_that_is_often_early_leaves_no_trail_of_late_wishes(queue: Queue[str], clock: Clock) -> None:
    queue.add("b", 1000.0)
    for _ in range(900):
        clock.now += 1.0
        queue.add("a", 3600.0)
        queue.add("a")
        queue.done(queue.take() or "")
    assert len(queue._later) < 100


async def test_get_waits_for_an_add(queue: Queue[str]) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        waiting = group.create_task(queue.get())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.add("a")
        assert await waiting == "a"


@dataclass
class World:
    """Random adds, takes, ends and steps of the clock, with a record of what must come of them."""

    seed: int
    clock: Clock = field(default_factory=Clock)
    working: dict[str, str] = field(default_factory=dict)  # each with the lane it entered
    lane_of: dict[str, str] = field(default_factory=dict)
    owed: set[str] = field(default_factory=set)  # added, and no pass has begun since

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.queue: Queue[str] = Queue(self.clock, lane_of=self.lane, draw=self.random.random)

    def lane(self, key: str) -> str:
        return self.lane_of.get(key, key[0])

    def step(self) -> None:
        key = f"{self.random.choice('abc')}{self.random.randrange(4)}"
        match self.random.randrange(7):
            case 0:
                self.queue.add(key)
                self.owed.add(key)
            case 1:
                self.queue.add(key, self.random.random() * 3)
                self.owed.add(key)
            case 2 | 3:
                self.take()
            case 4:
                self.end()
            case 5:
                self.clock.now += self.random.random()
            case 6:
                self.lane_of[key] = self.random.choice("abc")  # the claim asks another pool

    def take(self) -> None:
        key = self.queue.take()
        if key is None:
            return
        assert key not in self.working, "worked on twice at once"
        assert self.lane(key) not in self.working.values(), "two refs of one lane at once"
        self.working[key] = self.lane(key)
        self.owed.discard(key)

    def end(self) -> None:
        if self.working:
            key = self.random.choice(sorted(self.working))
            del self.working[key]
            if self.random.random() < 0.3:
                self.queue.retry(key, at_least=self.random.choice((0.0, 2.0)))
                self.owed.add(key)
            else:
                self.queue.succeed(key)
            self.queue.done(key)

    def drain(self) -> None:
        for _ in range(2000):
            self.clock.now += 1.0
            self.take()
            if self.working:
                self.queue.done(self.working.popitem()[0])
            elif not self.owed:
                return


@pytest.mark.parametrize("batch", range(20))
def test_two_thousand_random_interleavings_lose_nothing_and_double_nothing(batch: int) -> None:
    for seed in range(batch * 100, batch * 100 + 100):
        world = World(seed)
        for _ in range(150):
            world.step()
        world.drain()
        assert not world.owed, f"seed {seed} lost {world.owed}"
        assert len(world.queue) == 0


@pytest.mark.parametrize("batch", range(4))
def test_a_consumer_that_is_cancelled_again_and_again_loses_nothing(batch: int) -> None:
    """The asynchronous door on fake time: no wake-up is missed, whatever moment it comes."""

    async def story(draw: random.Random) -> None:
        queue: Queue[str] = Queue(asyncio.get_running_loop().time, draw=draw.random)
        owed: set[str] = set()

        async def produce() -> None:
            for _ in range(60):
                key = draw.choice("abcdef")
                queue.add(key, draw.choice((0.0, 0.0, 0.5, 2.0)))
                owed.add(key)
                await asyncio.sleep(draw.choice((0.0, 0.0, 0.3, 1.0)))

        async def consume() -> None:
            while owed or not producing.done():
                try:
                    async with asyncio.timeout(draw.choice((0.0, 0.2, 0.5, 5.0))):
                        key = await queue.get()
                except TimeoutError:
                    continue
                owed.discard(key)
                await asyncio.sleep(draw.choice((0.0, 0.1)))
                queue.done(key)

        producing = asyncio.create_task(produce())
        async with asyncio.timeout(1000):
            await consume()
        assert len(queue) == 0
        assert not queue.working

    for seed in range(batch * 25, batch * 25 + 25):
        run(story(random.Random(seed)))
