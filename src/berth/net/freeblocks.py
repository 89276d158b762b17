"""Free numbers as aligned blocks: what the strategies over blocks search.

A buddy system. Blocks of 64 numbers and more are free as a whole and filed by order (a block of order k has
2**k numbers); below that, `Cells` keep bitmaps. Halving takes a block out, merging puts it back, always as
far as it goes, so what is filed depends only on what is free, never on the order of events.

`best_fit` is kubipam's choice (its contract, 2.5 and 2.6), found by index instead of by its walk over all
blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from berth.net import bitmap
from berth.net.bitmap import ALL, ORDER
from berth.net.block import aligned_runs
from berth.net.cells import Cells
from berth.net.sortedints import SortedInts

FRAGMENTS = tuple(range(order, ORDER) for order in range(ORDER))
PARTS = tuple(range(order, ORDER + 1) for order in range(ORDER))
WHOLE = range(ORDER, ORDER + 1)


class FreeBlocks:
    __slots__ = ("_cells", "_filed", "_order_at", "_orders", "_width", "count")

    def __init__(self, width: int, runs: Iterable[tuple[int, int]] = ()) -> None:
        """From ascending runs that neither overlap nor touch: the ground, all of it free."""
        self._width = width
        self._filed: dict[int, SortedInts] = {}  # order → firsts of free blocks
        self._order_at: dict[int, int] = {}  # first → order, of the same blocks
        self._orders = 0  # bit k: there is a free block of order k
        self._cells = Cells()
        self.count = 0
        self._lay(runs)

    def _lay(self, runs: Iterable[tuple[int, int]]) -> None:
        edges: dict[int, int] = {}
        for run_first, run_last in runs:
            self.count += run_last - run_first + 1
            for first, order in aligned_runs(run_first, run_last):
                if order >= ORDER:
                    self._file(first, order)
                else:
                    cell = first >> ORDER
                    edges[cell] = edges.get(cell, 0) | bitmap.mask(first & 63, order)
        for cell, bits in edges.items():
            self._cells.lay(cell, bits)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Every free block as first and order; no two could be merged. In no particular order."""
        yield from self._order_at.items()
        yield from self._cells

    def covers(self, first: int, order: int) -> bool:
        """Is the whole block free?"""
        if order < ORDER:
            part = bitmap.mask(first & 63, order)
            if self._cells.bits(first >> ORDER) & part == part:
                return True
        return self._holding(first, order) is not None

    def take(self, first: int, order: int) -> bool:
        """Take a block out. False, and nothing changed, unless all of it is free."""
        cell = first >> ORDER
        bits = self._cells.bits(cell) if order < ORDER else 0
        if not bits:
            holding = self._holding(first, order)
            if holding is None:
                return False
            self._split(holding, first, max(order, ORDER))
            bits = ALL
        if order < ORDER:
            part = bitmap.mask(first & 63, order)
            if bits & part != part:
                return False
            self._cells.change(cell, bits, bits & ~part)
        self.count -= 1 << order
        return True

    def give(self, first: int, order: int) -> None:
        """Put a block back; none of it may be free, all of it must be ground."""
        self.count += 1 << order
        if order < ORDER:
            cell = first >> ORDER
            before = self._cells.bits(cell)
            after = before | bitmap.mask(first & 63, order)
            self._cells.change(cell, before, after)
            if after != ALL:
                return
            first, order = cell << ORDER, ORDER
        self._merge(first, order)

    def lowest(self, order: int, at: int = 0) -> int | None:
        """The lowest aligned hole of this order that starts at or after a number."""
        at = _aligned_up(at, order)
        best = self._cells.lowest_hole(order, PARTS[order], at) if order < ORDER else None
        for filed in self._orders_from(order):
            found = self._filed[filed].at_or_after(at >> filed << filed)
            if found is not None and (best is None or max(found, at) < best):
                best = max(found, at)
        return best

    def best_fit(self, order: int, at: int = 0) -> int | None:
        """Where kubipam puts a block of this order, looking at nothing that starts before `at`."""
        at = _aligned_up(at, order) if at else 0
        if order < ORDER:
            small = self._best_small(order, at)
            if small is not None:
                return small
        for filed in self._orders_from(order):
            found = self._filed[filed].at_or_after(at >> filed << filed)
            if found is not None:
                return max(found, at)
        return None

    def _best_small(self, order: int, at: int) -> int | None:
        """Among fragments and cells. The walk stops at a partly used cell unless a fragment came before it;
        a free cell does not stop it, so then the smallest fragment wins wherever it lies."""
        cells = self._cells
        used = cells.lowest_hole(order, WHOLE, at)
        free = self._filed[ORDER].at_or_after(at >> ORDER << ORDER) if self._orders & 1 << ORDER else None
        cell = used if free is None or (used is not None and used < free) else max(free, at)
        if not cells.has_fragments:
            return cell
        if cell is not None and cell == used:
            fragment = cells.lowest_hole(order, FRAGMENTS[order], at)
            if fragment is None or cell < fragment:
                return cell
        fragment = self._smallest_fragment(order, at)
        return cell if fragment is None else fragment

    def _smallest_fragment(self, order: int, at: int) -> int | None:
        for part in FRAGMENTS[order]:
            hole = self._cells.lowest_hole(order, range(part, part + 1), at)
            if hole is not None:
                return hole
        return None

    def _orders_from(self, order: int) -> Iterator[int]:
        """Orders, ascending from this one, of which there is a free block."""
        left = self._orders >> order << order
        while left:
            yield (left & -left).bit_length() - 1
            left &= left - 1

    def _holding(self, first: int, order: int) -> int | None:
        """The order of the free block that holds all of this one."""
        for filed in self._orders_from(max(order, ORDER)):
            if self._order_at.get(first >> filed << filed) == filed:
                return filed
        return None

    def _split(self, holding: int, first: int, order: int) -> None:
        """Take the block of this order that holds `first` out of the free block of order `holding`."""
        self._unfile(first >> holding << holding, holding)
        for half in range(holding - 1, order - 1, -1):
            self._file(first >> half << half ^ 1 << half, half)

    def _merge(self, first: int, order: int) -> None:
        while order < self._width:
            buddy = first ^ 1 << order
            if self._order_at.get(buddy) != order:
                break
            self._unfile(buddy, order)
            first = min(first, buddy)
            order += 1
        self._file(first, order)

    def _file(self, first: int, order: int) -> None:
        filed = self._filed.get(order)
        if filed is None:
            filed = self._filed[order] = SortedInts()
        filed.add(first)
        self._order_at[first] = order
        self._orders |= 1 << order

    def _unfile(self, first: int, order: int) -> None:
        filed = self._filed[order]
        filed.remove(first)
        del self._order_at[first]
        if not filed:
            self._orders ^= 1 << order


def _aligned_up(number: int, order: int) -> int:
    return -(-number >> order) << order
