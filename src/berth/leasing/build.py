"""The one place that says what a pool may lease: its ranges without its exclusions and reservations."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from berth.leasing.buddy import Buddy
from berth.leasing.free_space import FreeSpace
from berth.leasing.model import Pool, Strategy
from berth.leasing.ordered_ranges import OrderedRanges, Piece
from berth.net import Family, Range, RangeSet


def lay_out(pool: Pool) -> dict[Family, FreeSpace]:
    """The grounds of a pool by family, the family of its first range first."""
    families = dict.fromkeys(item.family for item in pool.ranges)
    grounds = {family: _ground(pool, family) for family in families}
    return {family: ground for family, ground in grounds.items() if ground.area}


def _ground(pool: Pool, family: Family) -> FreeSpace:
    barred = RangeSet([*pool.exclusions, *(block.range for block in pool.reservations.values())])
    if pool.strategy in (Strategy.BEST_FIT, Strategy.ROUND_ROBIN):
        area = RangeSet(item for item in pool.ranges if item.family == family)
        return Buddy(family, area.minus(barred))
    shares = [share for share in shares_of(pool) if share.range.family == family]
    pieces = [Piece(share.rank, part) for share in shares for part in barred.gaps(share.range)]
    return OrderedRanges(family, pieces, pool.ranges)


def shares_of(pool: Pool) -> Iterator[Piece]:
    """What each range of a pool has for itself."""
    ranked = [Piece(rank, item) for rank, item in enumerate(pool.ranges)]
    for family in dict.fromkeys(item.family for item in pool.ranges):
        yield from shared_out([piece for piece in ranked if piece.range.family == family])


def shared_out(ranges: list[Piece]) -> Iterator[Piece]:
    """Give each address of ranges of one family, which may overlap, to the first range that has it.

    One sweep over the places where a range starts or has ended; the heap has the ranges that are open there,
    the most preferred on top.
    """
    starting = sorted(ranges, key=lambda piece: -piece.range.first)
    edges = sorted({edge for _, item in ranges for edge in (item.first, item.last + 1)})
    heap: list[Piece] = []
    owner: Piece | None = None
    start = 0
    for edge in edges:
        while starting and starting[-1].range.first == edge:
            heappush(heap, starting.pop())
        while heap and heap[0].range.last < edge:
            heappop(heap)
        following = heap[0] if heap else None
        if following != owner:
            if owner is not None:
                yield Piece(owner.rank, Range(owner.range.family, start, edge - 1))
            owner, start = following, edge
