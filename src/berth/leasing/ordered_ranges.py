"""Ground for the strategies that go through a pool's ranges in their order.

There may be ten thousand ranges, and "the first range with room" must cost no search. So the addresses are
laid out in one line of *places* without holes, the most preferred first:

    ranges    10.0.9.0-10.0.9.4, 10.0.0.0-10.0.0.9         without 10.0.0.3
    pieces    10.0.9.0 … 10.0.9.4 | 10.0.0.0 … 10.0.0.2 | 10.0.0.4 … 10.0.0.9
    places           0 … 4        |        5 … 7        |        8 … 13

The lowest free place is then the answer. Claims for blocks are rarer here: with the first of them, free
space is indexed by blocks too. For those an address is numbered range index << width | address, which keeps
both the order of the ranges and the alignment; so a block always lies in one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from berth.leasing.free_space import FreeSpace
from berth.net import Family, Range, RangeSet
from berth.net.block import aligned_runs
from berth.net.freeblocks import FreeBlocks
from berth.net.taken import TakenSet


class Piece(NamedTuple):
    """What a range has for itself: nothing of it is excluded, reserved, or an earlier range's."""

    rank: int  # the range's index in the pool
    range: Range


class OrderedRanges(FreeSpace):
    __slots__ = (
        "_blocks",
        "_by_address",
        "_firsts",
        "_last_used",
        "_lasts",
        "_pieces",
        "_ranges",
        "_sorted",
        "_spans",
        "_starts",
        "_taken",
    )

    def __init__(self, family: Family, pieces: list[Piece], ranges: tuple[Range, ...]) -> None:
        """From pieces that do not overlap, and all ranges of the pool."""
        super().__init__(family, RangeSet(piece.range for piece in pieces))
        self._ranges = ranges
        self._pieces = sorted(pieces, key=lambda piece: (piece.rank, piece.range.first))
        self._firsts = [piece.range.first for piece in self._pieces]
        self._lasts = [piece.range.last for piece in self._pieces]
        self._by_address = sorted(range(len(pieces)), key=self._firsts.__getitem__)
        self._sorted = [self._firsts[index] for index in self._by_address]
        self._starts = [0]  # the place at which each piece starts, and the end
        for piece in self._pieces:
            self._starts.append(self._starts[-1] + piece.range.size)
        self._taken = TakenSet(self._starts.pop())
        ranks = [piece.rank for piece in self._pieces]
        self._spans = {rank: (bisect_left(ranks, rank), bisect_right(ranks, rank)) for rank in ranks}
        self._blocks: FreeBlocks | None = None
        self._last_used = 0  # the piece of the last answer: the next one is likely there too

    @property
    def free(self) -> int:
        return self._taken.size - self._taken.count

    @property
    def largest(self) -> int:
        runs = (aligned_runs(piece.range.first, piece.range.last) for piece in self._pieces)
        return max(order for run in runs for _, order in run)

    def take(self, first: int, length: int) -> bool:
        order = self.width - length
        index = self._last_used
        start = self._firsts[index]
        if not start <= first <= self._lasts[index]:
            index = self._by_address[bisect_right(self._sorted, first) - 1]
            start = self._firsts[index]
        if first < start or first + (1 << order) - 1 > self._lasts[index]:
            return False
        place = self._starts[index] + first - start
        if order:
            if not self.blocks.take(self._number(index, first), order):
                return False
            self._taken.add_run(place, place + (1 << order) - 1)
            return True
        taken = self._taken.add(place)
        if taken and self._blocks is not None:
            self._blocks.take(self._number(index, first), 0)
        return taken

    def give(self, first: int, length: int) -> None:
        order = self.width - length
        index = self._by_address[bisect_right(self._sorted, first) - 1]
        place = self._starts[index] + first - self._firsts[index]
        if order:
            self._taken.remove_run(place, place + (1 << order) - 1)
        else:
            self._taken.remove(place)
        if self._blocks is not None:
            self._blocks.give(self._number(index, first), order)

    def covers(self, first: int, length: int) -> bool:
        order = self.width - length
        run = Range(self.family, first, first + (1 << order) - 1)
        if not self.area.contains(run):
            return False
        if not order:
            _, place, _ = next(self._places(run))
            return not self._taken.is_taken(place)
        return all(self.blocks.covers(*part) for part in self._numbers(run))

    def take_all(self, run: Range) -> None:
        numbers = () if self._blocks is None else tuple(self._numbers(run))
        for _, first, last in self._places(run):
            self._taken.add_run(first, last)
        for number, order in numbers:
            self.blocks.take(number, order)

    def give_all(self, run: Range) -> None:
        for _, first, last in self._places(run):
            self._taken.remove_run(first, last)
        if self._blocks is not None:
            for number, order in self._numbers(run):
                self._blocks.give(number, order)

    def lowest(self, order: int) -> int | None:
        """The lowest address of the first range with room for a block of this order."""
        if order:
            number = self.blocks.lowest(order)
            return None if number is None else number & self.top
        place = self._taken.lowest_free()
        if place is None:
            return None
        index = self._last_used
        address = self._firsts[index] + place - self._starts[index]
        if not self._firsts[index] <= address <= self._lasts[index]:
            index = self._last_used = bisect_right(self._starts, place) - 1
            address = self._firsts[index] + place - self._starts[index]
        return address

    def at_random(self, order: int, random: Random) -> int | None:
        """metal3's rule: in the first range with room, the next from a random one on, wrapping at the end."""
        lowest = self.lowest(order)
        if lowest is None:
            return None
        rank = self._rank_of(lowest)
        drawn = self._ranges[rank].first + _below(self._ranges[rank].size, random)
        found = self._next_block(rank, drawn, order) if order else self._next_address(rank, drawn)
        return lowest if found is None else found

    def rank_with_room(self, order: int) -> int:
        lowest = self.lowest(order) if 0 <= order <= self.width else None
        return len(self._ranges) if lowest is None else self._rank_of(lowest)

    def _rank_of(self, address: int) -> int:
        """The index of the range that has this address."""
        return self._pieces[self._by_address[bisect_right(self._sorted, address) - 1]].rank

    def _next_address(self, rank: int, address: int) -> int | None:
        """The next free address of a range."""
        start, end = self._spans[rank]
        index = bisect_left(self._lasts, address, start, end)
        if index == end:
            return None
        place = self._starts[index] + max(address - self._firsts[index], 0)
        free = self._taken.free_at_or_after(place)
        if free is None:
            return None
        index = bisect_right(self._starts, free, index) - 1
        return self._firsts[index] + free - self._starts[index] if index < end else None

    def _next_block(self, rank: int, address: int, order: int) -> int | None:
        number = self.blocks.lowest(order, (rank << self.width) + address)
        return number & self.top if number is not None and number >> self.width == rank else None

    @property
    def blocks(self) -> FreeBlocks:
        """Free space by blocks, made with the first claim for one."""
        if self._blocks is None:
            self._blocks = self._indexed()
        return self._blocks

    def _indexed(self) -> FreeBlocks:
        bases = [piece.rank << self.width for piece in self._pieces]
        runs = zip(bases, self._firsts, self._lasts, strict=True)
        blocks = FreeBlocks(self.width, ((base + first, base + last) for base, first, last in runs))
        for first, last in self._taken.runs():
            for number, order in self._numbers_of(first, last):
                blocks.take(number, order)
        return blocks

    def _number(self, index: int, address: int) -> int:
        return (self._pieces[index].rank << self.width) + address

    def _numbers(self, run: Range) -> Iterator[tuple[int, int]]:
        """A run of addresses as aligned numbers with their order."""
        for index, first, last in self._places(run):
            shift = self._number(index, self._firsts[index]) - self._starts[index]
            yield from aligned_runs(first + shift, last + shift)

    def _numbers_of(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """A run of places, which may go on into further pieces, as aligned numbers with their order."""
        while first <= last:
            index = bisect_right(self._starts, first) - 1
            shift = self._number(index, self._firsts[index]) - self._starts[index]
            end = min(last, self._starts[index] + self._lasts[index] - self._firsts[index])
            yield from aligned_runs(first + shift, end + shift)
            first = end + 1

    def _places(self, run: Range) -> Iterator[tuple[int, int, int]]:
        """A run of addresses as runs of places, each with the index of its piece."""
        nearest = max(bisect_right(self._sorted, run.first) - 1, 0)
        for index in self._by_address[nearest : bisect_right(self._sorted, run.last)]:
            shift = self._starts[index] - self._firsts[index]
            first, last = max(run.first, self._firsts[index]), min(run.last, self._lasts[index])
            if first <= last:
                yield index, first + shift, last + shift


def _below(bound: int, random: Random) -> int:
    """Evenly among 0..bound-1, for bounds beyond what floats can count."""
    bits = (bound - 1).bit_length()
    number = random.getrandbits(bits)
    while number >= bound:
        number = random.getrandbits(bits)
    return number
