"""One kind of work: refs come from listeners, go through the queue, and are reconciled, many at a time.

A reconcile is given a ref and reads everything else from caches; it may run at any time and twice in a row.
What it raises says whether to try again: anything transient, and every no of the API server, comes back with
growing pauses, a lost leadership ends the process, and a bug is logged and tried again slowly, so that one
bad object never holds up another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from berth import log
from berth.backoff import Backoff
from berth.control.outcome import After, Outcome
from berth.control.queue import Queue
from berth.errors import BerthError, KubeError, NotLeader
from berth.kube.meta import Ref
from berth.metrics import Metrics

Reconcile = Callable[[Ref], Awaitable[Outcome]]


class Controller:
    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        metrics: Metrics,
        *,
        at_once: int = 64,
        lane_of: Callable[[Ref], Hashable | None] | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._metrics = metrics
        self._slots = asyncio.Semaphore(at_once)
        self._log = log.get(f"berth.{name}")
        self.queue: Queue[Ref] = Queue(clock, lane_of=lane_of, backoff=backoff)

    def add(self, ref: Ref, delay: float = 0.0) -> None:
        self.queue.add(ref, delay)

    async def run(self) -> None:
        """Work until cancelled. Every pass is a task of this group: none outlives it."""
        async with asyncio.TaskGroup() as passes:
            while True:
                await self._slots.acquire()
                ref = await self.queue.get()
                passes.create_task(self._pass(ref))

    async def _pass(self, ref: Ref) -> None:
        started = time.perf_counter()
        result = "error"
        try:
            with log.bound(ref=str(ref)):
                result = await self._attempt(ref)
        finally:
            self.queue.done(ref)
            self._slots.release()
            self._metrics.reconciled(self.name, result, time.perf_counter() - started)
            self._metrics.queue_depth(self.name, len(self.queue))

    async def _attempt(self, ref: Ref) -> str:
        try:
            outcome = await self._reconcile(ref)
        except NotLeader:
            raise
        except KubeError as error:
            return self._again(ref, error)
        except Exception as error:
            if isinstance(error, BerthError) and error.transient:
                return self._again(ref, error)
            self._log.error("reconcile failed unexpectedly", error=repr(error), exc_info=True)
            self.queue.retry(ref, at_least=1.0)
            return "error"
        self.queue.succeed(ref)
        if isinstance(outcome, After):
            self.queue.add(ref, outcome.seconds)
        return "done"

    def _again(self, ref: Ref, error: BerthError) -> str:
        delay = self.queue.retry(ref, at_least=error.retry_after_seconds or 0.0)
        say: Any = self._log.debug if error.transient else self._log.warning
        say("reconcile will be tried again", reason=error.reason, error=str(error), seconds=round(delay, 3))
        return "retry"
