"""A row of the fault matrix: what is done how often, and what came of it."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.faults.stage import Stage


@dataclass(slots=True)
class Tally:
    """What one run of a row tried and found."""

    tried: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    until_found: bool = False  # for planted bugs: one violation is enough
    ends_at: float = math.inf  # by the monotonic clock: then no further try is begun

    @property
    def is_over(self) -> bool:
        return (self.until_found and bool(self.violations)) or time.monotonic() > self.ends_at

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
    beside: bool = False  # brings its own control plane and stores

    async def run(self, stage: Stage | None, tries: int, tally: Tally | None = None) -> Tally:
        tally = tally or Tally()
        started_at = time.monotonic()
        try:
            await self.play(stage, tally, tries)
        finally:
            tally.seconds = time.monotonic() - started_at
        return tally
