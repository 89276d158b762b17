"""A row of the fault matrix: what is done how often, and what came of it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.faults.stage import Stage

HASTE = 0.25


@dataclass(slots=True)
class Tally:
    """What one run of a row tried and found."""

    tried: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    wanted: str = ""  # for planted bugs: the first violation that this finds is enough
    ends_at: float = math.inf  # by the monotonic clock: then no further try is begun

    @property
    def is_over(self) -> bool:
        return self.is_found or time.monotonic() > self.ends_at

    @property
    def is_found(self) -> bool:
        return bool(self.wanted) and any(re.search(self.wanted, one) for one in self.violations)

    @property
    def haste(self) -> float:
        """Nobody waits to the end for what a planted bug keeps from coming."""
        return HASTE if self.wanted else 1.0

    def add(self, found: list[str], what: str = "") -> None:
        self.tried += 1
        self.violations += [f"{what}: {one}" if what else one for one in found]


Play = Callable[[Stage | None, Tally, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """`short` is the number for every change, `long` the one for a long run; `play` tries that often."""

    id: str
    fault: str
    short: int
    long: int
    play: Play
    ours: bool = False  # knows our operator's own options; not for another controller
    beside: str = ""  # the tests that are the row: they bring their own control plane and stores
    share: int = 1  # of the time of a long run

    async def run(self, stage: Stage | None, tries: int, tally: Tally | None = None) -> Tally:
        tally = tally or Tally()
        started_at = time.monotonic()
        try:
            await self.play(stage, tally, tries)
        finally:
            if stage is not None:
                tally.violations += stage.take_found()
            tally.seconds = time.monotonic() - started_at
        return tally
