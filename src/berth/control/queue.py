"""The work queue: a ref at most once at a time, refs of one lane in turn, delays and backoff.

    add ──► waiting (due later) ──► ready ──► working ──done──► gone
                                      ▲          │ added meanwhile: again
                                      └──────────┘
    A ref whose lane is busy is parked behind it. A lane may change while its ref waits or is worked on: a ref
    leaves the lane it entered, and is asked for its lane when its turn comes.

`take`, `add` and `done` never await and read time only through the clock they were given, so that all
interleavings can be played through in tests. `get` is the one asynchronous door, for one consumer: the
controller's dispatcher.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from berth.backoff import Backoff

Key = TypeVar("Key", bound=Hashable)
SLACK = 64  # wishes that were overtaken stay among the delayed ones until there are more of them than this


@dataclass(slots=True)
class _Lane(Generic[Key]):
    busy: bool = False
    parked: deque[Key] = field(default_factory=deque)


class Queue(Generic[Key]):
    def __init__(
        self,
        clock: Callable[[], float],
        *,
        lane_of: Callable[[Key], Hashable | None] | None = None,
        backoff: Backoff | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._lane_of = lane_of
        self._backoff = backoff or Backoff()
        self._draw = draw
        self._order = itertools.count()
        self._ready: deque[Key] = deque()
        self._queued: set[Key] = set()  # in _ready or parked
        self._working: set[Key] = set()
        self._again: set[Key] = set()  # asked for while being worked on
        self._later: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}  # of failing keys whose server asked for time
        self._lanes: dict[Hashable, _Lane[Key]] = {}
        self._lane_in: dict[Key, Hashable] = {}  # of keys being worked on
        self._called: dict[Key, Hashable] = {}  # the lane that a ready key was parked in
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queued) + len(self._due)

    @property
    def working(self) -> frozenset[Key]:
        return frozenset(self._working)

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Ask for a pass over the key, now or later. The earlier of two wishes wins, but none is fulfilled
        before a pause that was asked for is over.
        """
        if key in self._not_before:
            delay = max(delay, self._not_before[key] - self._clock())
        if delay > 0:
            self._add_later(key, self._clock() + delay)
            return
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.append(key)
            self._wake.set()

    def retry(self, key: Key, at_least: float = 0.0) -> float:
        """A pass failed: ask for another after a pause that grows with every failure in a row. An event may
        cut the pause short, but never below `at_least`.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = max(at_least, self._backoff.delay(failures, self._draw()))
        if at_least > 0:
            self._not_before[key] = self._clock() + at_least
        self.add(key, delay)
        return delay

    def succeed(self, key: Key) -> None:
        """A pass went well: the next failure starts from the shortest pause again."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    def take(self) -> Key | None:
        """The next key that may be worked on now, or None. Its owner must call done."""
        self._promote()
        while self._ready:
            key = self._ready.popleft()
            if self._enter_lane(key):
                self._queued.discard(key)
                self._working.add(key)
                return key
        return None

    def done(self, key: Key) -> None:
        self._working.discard(key)
        self._leave_lane(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def next_due(self) -> float | None:
        """When the earliest delayed key becomes ready."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    async def get(self) -> Key:
        while (key := self.take()) is None:
            self._wake.clear()
            due = self.next_due()
            if due is None:
                await self._wake.wait()
                continue
            try:
                async with asyncio.timeout(max(0.0, due - self._clock())):
                    await self._wake.wait()
            except TimeoutError:
                continue
        return key

    def _add_later(self, key: Key, due: float) -> None:
        if key in self._queued or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._order), key))
        if len(self._later) > 2 * len(self._due) + SLACK:
            self._later = [entry for entry in self._later if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._later)
        self._wake.set()

    def _promote(self) -> None:
        now = self._clock()
        while (due := self.next_due()) is not None and due <= now:
            key = heapq.heappop(self._later)[2]
            del self._due[key]
            self.add(key)

    def _enter_lane(self, key: Key) -> bool:
        if self._lane_of is None:
            return True
        name, called = self._lane_of(key), self._called.pop(key, None)
        if called is not None and called != name:
            self._call_next(called)  # it does not come back: the lane is the next one's
        if name is None:
            return True
        lane = self._lanes.setdefault(name, _Lane())
        if lane.busy:
            lane.parked.append(key)
            return False
        lane.busy = True
        self._lane_in[key] = name
        return True

    def _leave_lane(self, key: Key) -> None:
        name = self._lane_in.pop(key, None)
        if name is not None:
            self._lanes[name].busy = False
            self._call_next(name)

    def _call_next(self, name: Hashable) -> None:
        lane = self._lanes.get(name)
        if lane is None or lane.busy:
            return
        if lane.parked:
            key = lane.parked.popleft()
            self._called[key] = name
            self._ready.appendleft(key)
            self._wake.set()
        else:
            del self._lanes[name]
