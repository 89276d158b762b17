"""How many reviews are under way. In a crowd a write waits a little for others to share it: each Service
takes longer than it would alone, and all of them together are done sooner. One that is alone never waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 8


class Crowd:
    def __init__(self) -> None:
        self._here = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        self._here += 1
        try:
            yield
        finally:
            self._here -= 1

    @property
    def is_here(self) -> bool:
        return self._here >= MANY

    async def gather(self, seconds: float, waiting: int = 0) -> None:
        """Not for a write that many wait for already."""
        if self.is_here and waiting < MANY:
            await asyncio.sleep(seconds)
