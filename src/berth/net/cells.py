"""The small end of the free blocks: cells of 64 numbers with a bitmap, indexed by what they can still serve.

A cell is an aligned run of 64. Where the ground (all numbers that can ever be free) fills only parts of a
cell, each aligned part is a *fragment* of its own; a whole cell counts as one part of order 6. Parts never
change, only how much of them is free, so a part is filed under (its order, the order of its largest free
hole).

Cells that are entirely free, or entirely taken, are not kept here.
"""

from __future__ import annotations

from collections.abc import Iterator

from berth.net import bitmap
from berth.net.bitmap import ALL, ORDER
from berth.net.sortedints import SortedInts

WHOLE_CELL = ((0, ORDER),)


class Cells:
    __slots__ = ("_bits", "_filed", "_parts", "_wide")

    def __init__(self) -> None:
        self._bits: dict[int, int] = {}
        self._parts: dict[int, tuple[tuple[int, int], ...]] = {}  # cells that are not all ground
        self._filed = [
            [SortedInts() for _ in range(ORDER)] for _ in range(ORDER + 1)
        ]  # [part's][hole's order]
        self._wide = [0] * (ORDER + 1)  # bit k of a part's order: some part has a widest hole of order k

    @property
    def has_fragments(self) -> bool:
        return bool(self._parts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Every aligned free piece as first and order."""
        for cell, bits in self._bits.items():
            for offset, order in bitmap.pieces(bits):
                yield (cell << ORDER) + offset, order

    def lay(self, cell: int, ground: int) -> None:
        """Say which bits of a cell are ground, all free, when it is not a whole cell."""
        self._parts[cell] = tuple(bitmap.pieces(ground))
        self.change(cell, 0, ground)

    def bits(self, cell: int) -> int:
        return self._bits.get(cell, 0)

    def change(self, cell: int, before: int, after: int) -> None:
        """The free bits of a cell become others: keep them and file its parts anew."""
        if after and not (after == ALL and cell not in self._parts):
            self._bits[cell] = after
        else:
            self._bits.pop(cell, None)
        parts = self._parts.get(cell)
        if parts is None:
            self._refile(cell << ORDER, ORDER, before, after)
            return
        for offset, order in parts:
            part = bitmap.mask(offset, order)
            self._refile((cell << ORDER) + offset, order, before & part, after & part)

    def _refile(self, first: int, order: int, before: int, after: int) -> None:
        old, new = bitmap.widest(before), bitmap.widest(after)
        if old == new:
            return
        filed = self._filed[order]
        if 0 <= old < ORDER:
            filed[old].remove(first)
            if not filed[old]:
                self._wide[order] ^= 1 << old
        if 0 <= new < ORDER:
            filed[new].add(first)
            self._wide[order] |= 1 << new

    def lowest_hole(self, order: int, parts: range, at: int) -> int | None:
        """The lowest hole of this order, from `at` on, in a part whose order is in `parts`."""
        cell = at >> ORDER
        if cell in self._bits:
            hole = self._hole_in_cell(order, parts, at)
            if hole is not None:
                return hole
        first = self._lowest_part(order, parts, (cell + 1) << ORDER)
        return None if first is None else self._hole_in_part(first, order)

    def _hole_in_cell(self, order: int, parts: range, at: int) -> int | None:
        cell = at >> ORDER
        starts = bitmap.holes(self._bits[cell], order) >> (at & 63) << (at & 63)
        usable = sum(bitmap.mask(*part) for part in self._parts.get(cell, WHOLE_CELL) if part[1] in parts)
        return (cell << ORDER) + bitmap.lowest(starts & usable) if starts & usable else None

    def _lowest_part(self, order: int, parts: range, at: int) -> int | None:
        best: int | None = None
        for part in parts:
            wide = self._wide[part] >> order << order
            while wide:
                first = self._filed[part][bitmap.lowest(wide)].at_or_after(at)
                if first is not None and (best is None or first < best):
                    best = first
                wide &= wide - 1
        return best

    def _hole_in_part(self, first: int, order: int) -> int:
        cell, offset = first >> ORDER, first & 63
        starts = bitmap.holes(self._bits[cell], order) >> offset << offset
        return (cell << ORDER) + bitmap.lowest(starts)
