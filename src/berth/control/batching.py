"""Whoever comes while a write is under way shares the next one: a flood of objects costs a few writes.

    ask ──► waiting ──► as many as fit go together ──► each has its own answer, or its own error
              ▲             │ under load the batch waits a little for others (LoadGauge)
              └─────────────┘ whoever comes meanwhile

A batch is a task of its own, so that whoever gives up waiting takes nobody else's write along. `Tasks` owns
such tasks: it is open as long as the operator runs, and ends what is left of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")
T = TypeVar("T")
MANY = 8


class LoadGauge:
    """How many requests are under way. Under load a write waits a little for others to share it: each takes
    longer than it would alone, and all of them together are done sooner. One that is alone never waits.
    """

    def __init__(self) -> None:
        self._under_way = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    @property
    def is_high(self) -> bool:
        return self._under_way >= MANY

    async def gather(self, seconds: float, waiting: int = 0) -> None:
        """Not for a write that many wait for already."""
        if self.is_high and waiting < MANY:
            await asyncio.sleep(seconds)


class Tasks:
    """The owner of tasks that whoever asked for them may leave."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class Batcher(Generic[Item, Answer]):
    """`send` answers for each item in order, with an exception where that one failed; what it raises is
    everybody's. `fitting`: how many of those who wait go into one batch, at least one.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[list[Answer | Exception]]],
        tasks: Tasks,
        *,
        fitting: Callable[[Iterable[Item]], int],
        gather: Callable[[int], Awaitable[None]] | None = None,
        at_once: int = 1,
        idle: Callable[[], object] = lambda: None,
    ) -> None:
        self._send = send
        self._tasks = tasks
        self._fitting = fitting
        self._gather = gather
        self._at_once = at_once
        self._idle = idle  # told when nobody waits any more
        self._waiting: list[tuple[Item, asyncio.Future[Answer]]] = []
        self._under_way = 0

    def __len__(self) -> int:
        """How many wait for their batch to begin."""
        return len(self._waiting)

    async def ask(self, item: Item) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._under_way < self._at_once:
            self._under_way += 1
            self._tasks.start(self._work())
        return await answer

    async def _work(self) -> None:
        try:
            while self._waiting:
                if self._gather is not None:
                    await self._gather(len(self._waiting))
                many = self._fitting(item for item, _ in self._waiting)
                group, self._waiting = self._waiting[:many], self._waiting[many:]
                # Given up before its turn came: nothing was asked for in its name yet.
                if group := [(item, answer) for item, answer in group if not answer.done()]:
                    await self._serve(group)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._idle()

    async def _serve(self, group: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._send([item for item, _ in group])
        except Exception as error:
            answers = [error] * len(group)
        except BaseException:
            for _, waiting in group:
                waiting.cancel()
            raise
        for (_, waiting), answer in zip(group, answers, strict=True):
            if waiting.done():
                continue
            if isinstance(answer, Exception):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)
