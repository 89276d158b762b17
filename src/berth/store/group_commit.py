"""Group commit. Requests that arrive while a transaction runs wait in a queue and are settled together by the
next one: the busier the ledger, the cheaper each request. A queue has one writer: SQLite has one for all
pools, PostgreSQL one for each. Whoever asked only waits for an answer; if it is cut off, its transaction
still ends well.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from berth import log
from berth.errors import StoreDown
from berth.store.requests import LedgerAnswer, LedgerRequest

LIMIT = 256  # requests in one transaction
WAITING = 10_000  # requests in one queue before newcomers are sent away


@dataclass(slots=True)
class CommitQueue:
    pool: str | None  # whose requests these are; None: any pool's
    waiting: deque[tuple[LedgerRequest, asyncio.Future[LedgerAnswer]]] = field(default_factory=deque)
    busy: bool = False


class CommitGroup:
    """The requests of one transaction. They are taken from the queue only once it has the lock: whoever
    arrives while it waits is settled with the others, and not in a transaction of its own.
    """

    def __init__(self, queue: CommitQueue) -> None:
        self.pool = queue.pool
        self._queue = queue
        self._taken: list[tuple[LedgerRequest, asyncio.Future[LedgerAnswer]]] = []

    def requests(self) -> list[LedgerRequest]:
        """The same ones each time; none when all who waited have given up: nobody would take an address."""
        waiting = self._queue.waiting
        while not self._taken and waiting:
            taken = [waiting.popleft() for _ in range(min(LIMIT, len(waiting)))]
            self._taken = [(request, answer) for request, answer in taken if not answer.done()]
        return [request for request, _ in self._taken]

    def answer(self, answers: Sequence[LedgerAnswer]) -> None:
        for (_, future), answer in zip(self._taken, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    def fail(self, cause: Exception) -> None:
        self.requests()  # who waits for a database that cannot even begin is told as well
        for _, future in self._taken:
            if not future.done():
                future.set_exception(cause)


class GroupCommit:
    """Owned by the ledger's task group; `settle` answers a group in order, or raises for all of it."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        settle: Callable[[CommitGroup], Awaitable[list[LedgerAnswer]]],
        *,
        one_writer: bool,
    ) -> None:
        self._tasks = tasks
        self._settle = settle
        self._one_writer = one_writer
        self._queues: dict[str | None, CommitQueue] = {}
        self._loop = asyncio.get_running_loop()

    def submit(self, request: LedgerRequest) -> asyncio.Future[LedgerAnswer]:
        key = None if self._one_writer else request.pool
        queue = self._queues.get(key) or self._queues.setdefault(key, CommitQueue(key))
        if len(queue.waiting) >= WAITING:
            raise StoreDown("too many requests wait for the database")
        answer: asyncio.Future[LedgerAnswer] = self._loop.create_future()
        queue.waiting.append((request, answer))
        if not queue.busy:
            queue.busy = True
            self._tasks.create_task(self._drain(queue))
        return answer

    @property
    def waiting(self) -> int:
        return sum(len(queue.waiting) for queue in self._queues.values())

    async def _drain(self, queue: CommitQueue) -> None:
        try:
            while queue.waiting:
                group = CommitGroup(queue)
                try:
                    group.answer(await self._settle(group))
                except Exception as cause:
                    if not isinstance(cause, StoreDown):
                        log.get("berth.store").error("a group of requests failed", error=type(cause).__name__)
                    group.fail(cause)
        finally:
            queue.busy = False
