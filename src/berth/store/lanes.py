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
from berth.store.wishes import Answer, Wish

LIMIT = 256  # wishes in one transaction
WAITING = 10_000  # wishes in one lane before newcomers are sent away


@dataclass(slots=True)
class Lane:
    waiting: deque[tuple[Wish, asyncio.Future[Answer]]] = field(default_factory=deque)
    busy: bool = False


class Lanes:
    """Owned by the ledger's task group; `settle` answers a group in order, or raises for all of it."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        settle: Callable[[Sequence[Wish]], Awaitable[list[Answer]]],
        *,
        one_lane: bool,
    ) -> None:
        self._tasks = tasks
        self._settle = settle
        self._one_lane = one_lane
        self._lanes: dict[str, Lane] = {}
        self._loop = asyncio.get_running_loop()

    def submit(self, wish: Wish) -> asyncio.Future[Answer]:
        lane = self._lanes.setdefault("" if self._one_lane else wish.pool, Lane())
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
        # Whoever gave up waiting before its turn came is left out: nobody would take the address.
        group = [lane.waiting.popleft() for _ in range(min(LIMIT, len(lane.waiting)))]
        group = [(wish, answer) for wish, answer in group if not answer.done()]
        if not group:
            return
        try:
            answers = await self._settle([wish for wish, _ in group])
        except Exception as cause:
            self._fail([answer for _, answer in group], cause)
            return
        for (_, future), answer in zip(group, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def _fail(self, futures: Sequence[asyncio.Future[Answer]], cause: Exception) -> None:
        if not isinstance(cause, StoreDown):
            log.get("berth.store").error("a group of wishes failed", error=type(cause).__name__)
        for future in futures:
            if not future.done():
                future.set_exception(cause)
