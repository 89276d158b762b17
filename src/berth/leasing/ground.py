"""One family of a pool: the addresses it may ever lease, and which of them are free now.

The pool's ranges are an order of preference, and they may be many. So that "the first range with room" costs
no search, addresses are laid out as *places*: place = range index << width | address. The lowest free place
is then the lowest address of the first range with room, and alignment of places is alignment of addresses.

Strategies over blocks (kubipam's) know no order of ranges: for them every range has index 0, places are
addresses, and blocks may span ranges that touch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from berth.leasing.model import Pool, Strategy
from berth.net import Block, Family, Range, RangeSet
from berth.net.block import aligned_runs
from berth.net.freeblocks import FreeBlocks
from berth.net.gaps import Gaps

BY_BLOCKS = frozenset({Strategy.BEST_FIT, Strategy.ROUND_ROBIN})
new_tuple = tuple.__new__  # a third of the time Block() takes


class Ground:
    """`gaps` serve single addresses, for the strategies that ask for those; `blocks` serve blocks."""

    __slots__ = (
        "_bases",
        "_blocks",
        "_firsts",
        "_lasts",
        "_roomiest",
        "family",
        "gaps",
        "preference",
        "top",
        "width",
    )

    def __init__(
        self, family: Family, pieces: list[tuple[int, Range]], by_blocks: bool, preference: int
    ) -> None:
        """From pieces in address order, each with the index of its range."""
        self.preference = preference  # which family comes first in the pool's ranges
        self.family = family
        self.width = family.width
        self.top = family.top
        self._firsts = [piece.first for _, piece in pieces]
        self._lasts = [piece.last for _, piece in pieces]
        self._bases = [index << family.width for index, _ in pieces]
        self._roomiest: int | None = None
        runs = sorted((base + first, base + last) for base, first, last in self._pieces())
        self.gaps = None if by_blocks else Gaps(runs)
        self._blocks = FreeBlocks(family.width, runs) if by_blocks else None

    def _pieces(self) -> Iterator[tuple[int, int, int]]:
        return zip(self._bases, self._firsts, self._lasts, strict=True)

    @property
    def blocks(self) -> FreeBlocks:
        """Free space by blocks; a pool of single addresses gets it with its first claim for a block."""
        if self._blocks is None:
            self._blocks = self._as_blocks()
        return self._blocks

    def _as_blocks(self) -> FreeBlocks:
        runs = sorted((base + first, base + last) for base, first, last in self._pieces())
        blocks = FreeBlocks(self.width, runs)
        assert self.gaps is not None
        free = list(self.gaps)
        for first, last in _between(runs, free):
            for start, order in aligned_runs(first, last):
                blocks.take(start, order)
        return blocks

    @property
    def free(self) -> int:
        return self.blocks.count if self.gaps is None else self.gaps.count

    @property
    def roomiest(self) -> int:
        """The order of the largest block this ground could lease if all were free."""
        if self._roomiest is None:
            runs = ((base + first, base + last) for base, first, last in self._pieces())
            self._roomiest = max(order for run in runs for _, order in aligned_runs(*run))
        return self._roomiest

    def block_of(self, place: int, length: int | None = None) -> Block:
        if length is None:
            length = self.width
        return new_tuple(Block, (self.family, place & self.top, length))

    def lowest(self, order: int, at: int = 0) -> int | None:
        """The lowest free place from `at` on where a block of this order starts."""
        if order or self.gaps is None:
            return self.blocks.lowest(order, at)
        return self.gaps.at_or_after(at) if at else self.gaps.lowest()

    def take(self, first: int, length: int) -> bool:
        """Take a block that lies in one piece. False, and nothing changed, unless all of it is free."""
        piece = bisect_right(self._firsts, first) - 1
        order = self.width - length
        last = first + (1 << order) - 1
        if piece < 0 or last > self._lasts[piece]:
            return False
        return self._take(self._bases[piece] + first, order)

    def _take(self, place: int, order: int) -> bool:
        if self.gaps is None:
            return self.blocks.take(place, order)
        taken = self.gaps.take(place, place + (1 << order) - 1)
        if taken and self._blocks is not None:
            self._blocks.take(place, order)
        return taken

    def give(self, first: int, length: int) -> None:
        """Put back what `take` took."""
        place = self._bases[bisect_right(self._firsts, first) - 1] + first
        self._give(place, self.width - length)

    def _give(self, place: int, order: int) -> None:
        if self.gaps is not None:
            self.gaps.give(place, place + (1 << order) - 1)
        if self._blocks is not None:
            self._blocks.give(place, order)

    def covers(self, block: Block) -> bool:
        """Is all of the block free?"""
        return all(self._covers(place, order) for place, order in self._parts(block.first, block.last)) and (
            sum(1 << order for _, order in self._parts(block.first, block.last)) == block.size
        )

    def _covers(self, place: int, order: int) -> bool:
        if self.gaps is None:
            return self.blocks.covers(place, order)
        return self.gaps.covers(place, place + (1 << order) - 1)

    def take_all(self, run: Range) -> None:
        """Take what is ground of a run; all of that must be free."""
        for place, order in self._parts(run.first, run.last):
            self._take(place, order)

    def give_all(self, run: Range) -> None:
        """Put back what is ground of a run; none of that may be free."""
        for place, order in self._parts(run.first, run.last):
            self._give(place, order)

    def first_taken(self, block: Block) -> int | None:
        """The lowest address of the block that is ground and not free: there a lease starts."""
        for place, order in self._parts(block.first, block.last):
            if not self._covers(place, order):
                return self._first_taken(place, order) & self.top
        return None

    def _first_taken(self, place: int, order: int) -> int:
        """By halving: in the lower half unless all of that is free."""
        for half in range(order - 1, -1, -1):
            if self._covers(place, half):
                place += 1 << half
        return place

    def _parts(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """What is ground of first..last, as aligned places with their order."""
        for piece in range(bisect_left(self._lasts, first), bisect_right(self._firsts, last)):
            base = self._bases[piece]
            start, end = max(first, self._firsts[piece]), min(last, self._lasts[piece])
            for part, order in aligned_runs(start, end):
                yield base + part, order


def lay_out(pool: Pool) -> dict[Family, Ground]:
    """The one place that says what a pool may lease: its ranges without exclusions and reservations."""
    barred = RangeSet(pool.exclusions).union(block.range for block in pool.reservations.values())
    by_blocks = pool.strategy in BY_BLOCKS
    pieces = [(0, item) for item in RangeSet(pool.ranges)] if by_blocks else list(_shared_out(pool.ranges))
    open_pieces = [(index, part) for index, piece in pieces for part in barred.gaps(piece)]
    grounds = {}
    for family in Family:
        mine = [item for item in open_pieces if item[1].family == family]
        if mine:
            preference = next(i for i, item in enumerate(pool.ranges) if item.family == family)
            grounds[family] = Ground(family, mine, by_blocks, preference)
    return grounds


def _shared_out(ranges: Iterable[Range]) -> Iterator[tuple[int, Range]]:
    """Give each address to the first range that has it: pieces in address order with the range's index."""
    for family in Family:
        mine = [(index, item) for index, item in enumerate(ranges) if item.family == family]
        yield from _swept(family, mine)


def _swept(family: Family, ranges: list[tuple[int, Range]]) -> Iterator[tuple[int, Range]]:
    """One sweep over all ends; the heap has the ranges that are open, the most preferred on top."""
    starting = sorted(ranges, key=lambda item: -item[1].first)
    edges = sorted({edge for _, item in ranges for edge in (item.first, item.last + 1)})
    heap: list[tuple[int, int]] = []
    owner, start = None, 0
    for edge in edges:
        while starting and starting[-1][1].first == edge:
            index, item = starting.pop()
            heappush(heap, (index, item.last))
        while heap and heap[0][1] < edge:
            heappop(heap)
        best = heap[0][0] if heap else None
        if best != owner:
            if owner is not None:
                yield owner, Range(family, start, edge - 1)
            owner, start = best, edge


def _between(runs: list[tuple[int, int]], free: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What of the runs is not free; both ascending."""
    at = 0
    for first, last in runs:
        while first <= last:
            while at < len(free) and free[at][1] < first:
                at += 1
            gap = free[at] if at < len(free) else (last + 1, last + 1)
            if first < gap[0]:
                yield first, min(last, gap[0] - 1)
            first = gap[1] + 1
