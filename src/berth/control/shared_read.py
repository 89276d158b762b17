"""An answer of the API server that holds for a moment. Many who ask at once cost one read: whoever comes
while it is under way waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from berth.control.batching import Tasks

T = TypeVar("T")
FRESH_SECONDS = 2.0


class SharedRead(Generic[T]):
    """`read` gives None for an answer that is not to be kept."""

    def __init__(
        self, read: Callable[[], Awaitable[T | None]], tasks: Tasks, seconds: float = FRESH_SECONDS
    ) -> None:
        self._read = read
        self._tasks = tasks
        self._seconds = seconds
        self._found: T | None = None
        self._until = float("-inf")
        self._reading: asyncio.Task[T | None] | None = None

    async def get(self) -> T | None:
        if self._found is not None and time.monotonic() < self._until:
            return self._found
        if self._reading is None or self._reading.done():
            # A task of its own: whoever gives up waiting does not take the reading from the others.
            self._reading = self._tasks.start(self._look())
            self._reading.add_done_callback(_retrieved)
        return await asyncio.shield(self._reading)

    def forget(self) -> None:
        self._until = float("-inf")

    async def _look(self) -> T | None:
        self._found = await self._read()
        self._until = time.monotonic() + self._seconds
        return self._found


def _retrieved(task: asyncio.Task[T | None]) -> None:
    """What went wrong is told to those who wait; if none is left, to nobody."""
    if not task.cancelled():
        task.exception()
