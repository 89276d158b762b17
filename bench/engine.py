"""`berth bench engine`: what a decision costs, and that neither the pool's size nor its fill changes that.

One JSON object a line. A *take* is the whole public path: make the claim, decide, take in memory; a
*release* is its undoing. Both are measured at a level: with n leases in the pool, a batch of claims is taken
and released again (in shuffled order) until enough time has been measured. *Fragmented* means that every
second lease was released before. `flat` is the slowest level's cost over the quickest's, by medians; times
are CPU time of this one process.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from random import Random
from statistics import median
from time import process_time
from typing import Any

from berth.leasing import Claim, Pool, Space, Strategy, decide
from berth.net import Block, Family, Range, parse_range

LEVELS = (10, 1_000, 100_000, 1_000_000)
SAMPLES = 15
SAMPLE_OPERATIONS = 5_000
WARM_UP = 2


def shapes() -> dict[str, tuple[Range, ...]]:
    """10,000 ranges: /22s with holes of the same size between them, preferred in shuffled order."""
    ranges = [
        Range(Family.V4, start, start + 1023) for start in range(0x0A000000, 0x0A000000 + 10_000 * 2048, 2048)
    ]
    Random(0).shuffle(ranges)
    return {
        "/8": (parse_range("10.0.0.0/8"),),
        "/64": (parse_range("fd00::/64"),),
        "10000 ranges": tuple(ranges),
    }


class Operation(IntEnum):
    TAKE = 0
    RELEASE = 1


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked of which pool."""

    shape: str
    strategy: Strategy
    bits: int = 0  # blocks of 2**bits addresses


SHAPES = ("/8", "/64", "10000 ranges")
CASES = tuple(Case(shape, Strategy.FIRST) for shape in SHAPES)
EVERY_CASE = (
    *(Case(shape, strategy) for strategy in Strategy for shape in SHAPES),
    *(Case(shape, Strategy.BEST_FIT, bits=2) for shape in SHAPES),
    Case("/8", Strategy.ROUND_ROBIN, bits=2),
    Case("/8", Strategy.FIRST, bits=2),
)


@dataclass(slots=True)
class Field:
    """A space with so many leases."""

    case: Case
    space: Space
    level: int
    random: Random = field(default_factory=lambda: Random(1))
    held: list[Block] = field(default_factory=list)
    number: int = 0

    @property
    def length(self) -> int | None:
        width = self.space.pool.ranges[0].family.width
        return width - self.case.bits if self.case.bits else None

    def holders(self, count: int) -> list[str]:
        self.number += count
        return [f"IPClaim/default/claim-{number}" for number in range(self.number - count, self.number)]

    def take(self, holders: Sequence[str]) -> tuple[float, list[Block]]:
        """Seconds, and what was granted."""
        spaces, length, random = (self.space,), self.length, self.random
        blocks: list[Block] = []
        started = process_time()
        for holder in holders:
            grant = decide(Claim(holder, length=length), spaces, random)
            grant.take()  # type: ignore[union-attr]
            blocks.append(grant.block)  # type: ignore[union-attr]
        return process_time() - started, blocks

    def release(self, blocks: Sequence[Block]) -> float:
        release = self.space.release
        started = process_time()
        for block in blocks:
            release(block)
        return process_time() - started

    def fill(self) -> None:
        self.held = self.take(self.holders(self.level))[1]

    def thin(self) -> None:
        """Release every second lease."""
        self.held.sort()
        self.release(self.held[::2])
        del self.held[::2]

    def facts(self) -> dict[str, Any]:
        return {
            "bench": "engine",
            "shape": self.case.shape,
            "strategy": str(self.case.strategy),
            "addresses": 1 << self.case.bits,
            "n": self.level,
            "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def run(most: int = LEVELS[-1], cases: Sequence[Case] = CASES) -> Iterator[dict[str, Any]]:
    pools = shapes()
    for case in cases:
        pool = Pool("bench", pools[case.shape], strategy=case.strategy)
        yield from _run_case([Field(case, Space(pool), level) for level in LEVELS if level <= most])


def _run_case(fields: list[Field]) -> Iterator[dict[str, Any]]:
    for one in fields:
        one.fill()
    yield from _measure(fields, fragmented=False)
    for one in fields:
        one.thin()
    yield from _measure(fields, fragmented=True)


def _measure(fields: list[Field], *, fragmented: bool) -> Iterator[dict[str, Any]]:
    """The levels take turns, so that what else the machine does meets all of them alike."""
    samples = [[_sample(one) for one in fields] for _ in range(WARM_UP + SAMPLES)][WARM_UP:]
    for op in Operation:
        rates = [[sample[level][op] for sample in samples] for level in range(len(fields))]
        medians = [median(level) for level in rates]
        for one, level in zip(fields, rates, strict=True):
            yield {
                **one.facts(),
                "fragmented": fragmented,
                "op": op.name.lower(),
                "per_s": round(median(level)),
                "best_per_s": round(max(level)),
                "flat": round(max(medians) / min(medians), 2),
            }


def _sample(one: Field) -> tuple[float, float]:
    """Takes and releases a second at this field's level."""
    batch = min(one.level, 1_000)
    times = SAMPLE_OPERATIONS // batch
    took = released = 0.0
    for _ in range(times):
        seconds, blocks = one.take(one.holders(batch))
        took += seconds
        one.random.shuffle(blocks)
        released += one.release(blocks)
    return times * batch / took, times * batch / released


def main() -> None:
    for row in run():
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
