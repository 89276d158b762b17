"""A bounded wait for a condition; the only way a test here lets time pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    for _ in iter(holds, True):
        assert loop.time() < end, f"not so within {seconds} s"
        await asyncio.sleep(0.005)
