"""Group commit. Wishes that arrive while a transaction runs wait in their lane and are settled together by
the next one: the busier the ledger, the cheaper each wish. A lane is one writer: all pools together on
SQLite, each pool on PostgreSQL. The request that asked only waits for an answer; if it is cut off, its
transaction still ends well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from berth import log
from berth.errors import StoreDown
from berth.store.requests import Answer, Wish

LIMIT = 256  # wishes in one transaction
WAITING = 10_000  # wishes in one lane before newcomers are sent away


@dataclass(slots=True)
class Lane:
    pool: str | None  # whose wishes these are; None: any pool's
    waiting: deque[tuple[Wish, asyncio.Future[Answer]]] = field(default_factory=deque)
    busy: bool = False


class Group:
    """The wishes of one transaction. They are taken from the lane only once it has the lock: whoever
    arrives while it waits is settled with the others, and not in a transaction of its own.
    """

    def __init__(self, lane: Lane) -> None:
        self.pool = lane.pool
        self._lane = lane
        self._taken: list[tuple[Wish, asyncio.Future[Answer]]] = []

    def wishes(self) -> list[Wish]:
        """The same ones each time; none when all who waited have given up: nobody would take an address."""
        waiting = self._lane.waiting
        while not self._taken and waiting:
            taken = [waiting.popleft() for _ in range(min(LIMIT, len(waiting)))]
            self._taken = [(wish, answer) for wish, answer in taken if not answer.done()]
        return [wish for wish, _ in self._taken]

    def answer(self, answers: Sequence[Answer]) -> None:
        for (_, future), answer in zip(self._taken, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def fail(self, cause: Exception) -> None:
        self.wishes()  # who waits for a database that cannot even begin is told as well
        for _, future in self._taken:
            if not future.done():
                future.set_exception(cause)


class Lanes:
    """Owned by the ledger's task group; `settle` answers a group in order, or raises for all of it."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        settle: Callable[[Group], Awaitable[list[Answer]]],
        *,
        one_lane: bool,
    ) -> None:
        self._tasks = tasks
        self._settle = settle
        self._one_lane = one_lane
        self._lanes: dict[str | None, Lane] = {}
        self._loop = asyncio.get_running_loop()

    def submit(self, wish: Wish) -> asyncio.Future[Answer]:
        key = None if self._one_lane else wish.pool
        lane = self._lanes.get(key) or self._lanes.setdefault(key, Lane(key))
        if len(lane.waiting) >= WAITING:
            raise StoreDown("too many requests wait for the database")
        answer: asyncio.Future[Answer] = self._loop.create_future()
        lane.waiting.append((wish, answer))
        if not lane.busy:
            lane.busy = True
            self._tasks.create_task(self._drain(lane))
        return answer

    @property
    def waiting(self) -> int:
        return sum(len(lane.waiting) for lane in self._lanes.values())

    async def _drain(self, lane: Lane) -> None:
        try:
            while lane.waiting:
                await self._next_group(lane)
        finally:
            lane.busy = False

    async def _next_group(self, lane: Lane) -> None:
        group = Group(lane)
        try:
            answers = await self._settle(group)
        except Exception as cause:
            if not isinstance(cause, StoreDown):
                log.get("berth.store").error("a group of wishes failed", error=type(cause).__name__)
            group.fail(cause)
            return
        group.answer(answers)
