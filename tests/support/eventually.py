"""Wait on a condition, with a bound: nothing sleeps a fixed time and hopes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def eventually(look: Callable[[], Awaitable[T]], seconds: float = 60.0, every: float = 0.05) -> T:
    """Look again and again until what is seen is true; TimeoutError if that never happens."""
    async with asyncio.timeout(seconds):
        while True:
            seen = await look()
            if seen:
                return seen
            await asyncio.sleep(every)
