"""Free blocks: the lowest hole, and merging back to what there was. (Best fit:
leasing/test_kubipam_order.py.)"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import budget

from berth.net import Family, Range, RangeSet
from berth.net.freeblocks import FreeBlocks

REACH = 300
SPANS = st.lists(
    st.tuples(st.integers(0, REACH), st.sampled_from([1, 3, 20, 64, 130])), min_size=1, max_size=4
)
BLOCKS = st.lists(st.tuples(st.integers(0, REACH), st.integers(0, 7)), max_size=12)


def laid(spans: list[tuple[int, int]]) -> tuple[FreeBlocks, set[int]]:
    area = RangeSet(Range(Family.V4, first, first + size - 1) for first, size in spans)
    numbers = {number for part in area for number in range(part.first, part.last + 1)}
    return FreeBlocks(32, ((part.first, part.last) for part in area)), numbers


@budget(150)
@given(SPANS, BLOCKS, st.integers(0, REACH), st.integers(0, 7))
def test_taking_asking_and_giving_back_agree_with_a_plain_set(
    spans: list[tuple[int, int]], blocks: list[tuple[int, int]], at: int, order: int
) -> None:
    ours, free = laid(spans)
    held = []
    for number, size in blocks:
        first = number >> size << size
        block = set(range(first, first + (1 << size)))
        assert ours.covers(first, size) == (block <= free)
        assert ours.take(first, size) == (block <= free)
        if block <= free:
            free -= block
            held.append((first, size))
    assert ours.count == len(free)
    assert {n for first, size in ours for n in range(first, first + (1 << size))} == free
    assert ours.lowest(order, at) == _lowest(free, order, at)
    for block_held in held:
        ours.give(*block_held)
    assert sorted(ours) == sorted(laid(spans)[0])


def _lowest(free: set[int], order: int, at: int) -> int | None:
    size = 1 << order
    starts = (first for first in range(0, 2 * REACH, size) if first >= at)
    return next((first for first in starts if free.issuperset(range(first, first + size))), None)
