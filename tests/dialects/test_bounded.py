"""Work grows with the size of an object, not with its square: by CPU time, which no neighbour changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.operator import built

from berth.dialects.kubipam import memory
from berth.dialects.kubipam.allocations import Draft, Page
from berth.dialects.kubipam.kinds import RANGE, TAKEN
from berth.dialects.kubipam.translate import read_range
from berth.dialects.vip import kinds
from berth.dialects.vip.translate import read_segment
from berth.leasing.space import Space
from berth.net import Block, Family, RangeSet, parse_block

FEW, MANY = 2_500, 10_000
# Four times as much takes four times as long, and a little for the logarithm; the square takes sixteen.
MOST = 9.0


def _scattered(count: int) -> list[Block]:
    """Every other address, so that nothing can be merged."""
    start = parse_block("10.0.0.0/32").first
    return [Block(Family.V4, start + 2 * number, 32) for number in range(count)]


def exclusions(count: int) -> None:
    excluded = [block.address for block in _scattered(count)]
    group = built(kinds.IPGROUP, "g", {"segment": "10.0.0.0/8", "excludedIPs": excluded})
    space = Space(read_segment(group).pool)
    assert space.usage().free == (1 << 24) - count


def ranges(count: int) -> None:
    found = built(RANGE, "p", {"ranges": [block.address for block in _scattered(count)]})
    found["metadata"]["namespace"] = "n"
    assert Space(read_range(found).pool).usage().free == count


def remembering(count: int) -> None:
    """Each of another namespace, half of them not back yet."""
    blocks = _scattered(count)
    before = memory.Memory({f"n{number}": RangeSet([one.range]) for number, one in enumerate(blocks)})
    taken = RangeSet(block.range for block in blocks)
    held = [(f"n{number}", blocks[number]) for number in range(0, count, 2)]
    now = memory.remember(before, taken, held)
    assert now == before
    annotations = {TAKEN: now.rendered()}
    assert memory.read_memory({"metadata": {"annotations": annotations}}).all().contains(blocks[-1])


def returning(count: int) -> None:
    blocks = _scattered(count)
    draft = Draft(Page())
    draft.keep(RangeSet(block.range for block in blocks))
    assert all(draft.grant(str(block), block, is_returning=True) for block in blocks)
    assert not draft.page().kept


def _seconds(work: Callable[[int], None], count: int) -> float:
    """The least of two: what else this process had to do is not counted."""
    found = []
    for _ in range(2):
        started_at = time.process_time()
        work(count)
        found.append(time.process_time() - started_at)
    return min(found)


@pytest.mark.parametrize("work", [exclusions, ranges, remembering, returning])
def test_four_times_as_much_is_about_four_times_the_work(work: Any) -> None:
    ratio = _seconds(work, MANY) / _seconds(work, FEW)
    assert ratio < MOST, f"{ratio:.1f} times"
