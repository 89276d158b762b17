"""RANDOM is metal3's rule, and no strategy's cost grows with the pool or its fill."""

from __future__ import annotations

import sys
from collections import Counter
from random import Random
from types import FrameType
from typing import Any

import pytest
from tests.support.naive import Rigged

from berth.leasing import Claim, Grant, Pool, Space, Strategy, decide
from berth.net import Family, Range, parse_block, parse_range


def space(*ranges: str, without: str = "", strategy: Strategy = Strategy.RANDOM) -> Space:
    return Space(
        Pool("p", tuple(map(parse_range, ranges)), tuple(map(parse_range, without.split())), {}, strategy)
    )


def drawn(pool: Space, number: int, length: int | None = None, family: Family | None = None) -> str:
    decision = decide(Claim(f"holder {number}", family=family, length=length), (pool,), Rigged(number))
    assert isinstance(decision, Grant)
    return decision.block.address


def test_random_takes_the_next_free_address_from_the_drawn_one_on_and_wraps_at_the_ranges_end() -> None:
    pool = space("10.0.0.0-10.0.0.9", "10.0.1.0/24")
    for text in ("10.0.0.3", "10.0.0.4", "10.0.0.8", "10.0.0.9"):
        pool.take(parse_block(text), text)
    assert drawn(pool, 2) == "10.0.0.2"
    assert drawn(pool, 3) == "10.0.0.5"
    assert drawn(pool, 8) == "10.0.0.0"


def test_random_skips_what_is_excluded_or_an_earlier_ranges() -> None:
    pool = space("10.0.0.4-10.0.0.5", "10.0.0.0-10.0.0.9", without="10.0.0.7 10.0.0.9")
    assert drawn(pool, 1) == "10.0.0.5"
    for text in ("10.0.0.4", "10.0.0.5"):
        pool.take(parse_block(text), text)
    assert [drawn(pool, number) for number in (3, 4, 7, 9)] == [
        "10.0.0.3",
        "10.0.0.6",
        "10.0.0.8",
        "10.0.0.0",
    ]


def test_random_exhausts_a_range_before_it_uses_the_next() -> None:
    pool = space("10.0.5.0/28", "10.0.0.0/28")
    random = Random(7)
    addresses = []
    for number in range(32):
        decision = decide(Claim(f"h{number}"), (pool,), random)
        assert isinstance(decision, Grant)
        decision.take()
        addresses.append(decision.block.address)
    assert {address.rpartition(".")[0] for address in addresses[:16]} == {"10.0.5"}
    assert len(set(addresses)) == 32
    assert addresses[:16] != sorted(addresses[:16])


def test_random_is_even_in_an_empty_range_and_favours_what_lies_behind_a_run_of_leases() -> None:
    pool = space("10.0.0.0/30")
    random = Random(1)
    assert set(Counter(_draw(pool, random) for _ in range(200))) == {f"10.0.0.{i}" for i in range(4)}
    pool.take(parse_block("10.0.0.0/31"), "other")
    counts = Counter(_draw(pool, random) for _ in range(400))
    assert counts["10.0.0.2"] > 2 * counts["10.0.0.3"]


def _draw(pool: Space, random: Random) -> str:
    decision = decide(Claim("h"), (pool,), random)
    assert isinstance(decision, Grant)
    return decision.block.address


def test_random_without_a_given_source_has_its_own() -> None:
    pool = space("fd00::/64")
    first = decide(Claim("h"), (pool,))
    second = decide(Claim("h"), (pool,))
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    assert first.block != second.block


def test_random_blocks_are_aligned_and_stay_in_their_range() -> None:
    pool = space("10.0.0.0/24", "10.0.1.0/24")
    assert drawn(pool, 130, length=30) == "10.0.0.132"
    assert drawn(pool, 253, length=30) == "10.0.0.0"


def test_random_of_one_family_looks_only_at_its_ranges() -> None:
    pool = space("10.0.0.0/24", "fd00::/120")
    assert drawn(pool, 9, family=Family.V6) == "fd00::9"
    assert drawn(pool, 9) == "10.0.0.9"


SHAPES = {
    "/8": (parse_range("10.0.0.0/8"),),
    "/64": (parse_range("fd00::/64"),),
    "1000 ranges": tuple(Range(Family.V4, start, start + 9) for start in range(0, 16_000, 16)),
}


class Steps:
    """Counts the lines of the engine that run."""

    def __init__(self) -> None:
        self.lines = 0

    def __enter__(self) -> Steps:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.lines += event == "line"
        return self._call


def steps(pool: Space, turns: int, length: int | None) -> int:
    """Lines for so many claims that are taken and released one after the other, after a warm-up."""
    random = Random(2)
    for turn in range(turns + 1):
        if turn == 1:
            counted = Steps()
            counted.__enter__()
        decision = decide(Claim("someone new", length=length), (pool,), random)
        assert isinstance(decision, Grant)
        decision.take()
        assert pool.release(decision.block)
    counted.__exit__()
    return counted.lines


@pytest.mark.parametrize("blocks", [False, True], ids=["addresses", "blocks"])
@pytest.mark.parametrize("fragmented", [False, True], ids=["dense", "fragmented"])
@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("shape", list(SHAPES))
def test_the_steps_of_a_decision_do_not_grow_with_the_leases(
    shape: str, strategy: Strategy, fragmented: bool, blocks: bool
) -> None:
    counts = []
    length = SHAPES[shape][0].family.width - 2 if blocks else None
    for level in (20, 2_000):
        pool = Space(Pool("p", SHAPES[shape], strategy=strategy))
        random = Random(3)
        for number in range(level):
            decision = decide(Claim(f"h{number}"), (pool,), random)
            assert isinstance(decision, Grant)
            decision.take()
        for lease in sorted(pool.leases())[:: 2 if fragmented else level]:
            pool.release(lease.block)
        counts.append(steps(pool, 20, length))
    assert counts[1] < 2 * counts[0], "a level of bitmaps more, a halving more, but nothing that grows"
