"""How long an operator's process computes, and how long it keeps a probe waiting."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import aiohttp
from tests.faults.process import Child


def computed_seconds(child: Child) -> float:
    """How long all its threads have computed."""
    threads = Path(f"/proc/{child.process.pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in threads) / 1e9


def busy_seconds(child: Child) -> float:
    """How long its event loop's thread has computed."""
    pid = child.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


async def look(child: Child, url: str, held: list[float]) -> None:
    """Asks after its health again and again. What others on this machine take from it is not its doing: a
    look counts as held up by as much as the operator computed meanwhile.
    """
    async with aiohttp.ClientSession() as session:
        while True:
            busy, started_at = busy_seconds(child), time.monotonic()
            async with session.get(url) as answer:
                assert answer.status == 200
            held.append(min(time.monotonic() - started_at, busy_seconds(child) - busy))
            await asyncio.sleep(0.005)
