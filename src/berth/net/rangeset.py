"""Sorted, merged ranges of one or both families: the arithmetic of "what a pool contains".

Immutable. Ranges that touch are one range, so equal sets have equal ranges and `blocks()` is minimal.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from berth.net.address import Family
from berth.net.block import Block, blocks_of
from berth.net.range import Range


class RangeSet:
    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._firsts: dict[Family, list[int]] = {}
        self._lasts: dict[Family, list[int]] = {}
        for item in sorted(ranges, key=lambda item: (item.family, item.first)):
            self._append(item)
        self.count = sum(item.size for item in self)

    def _append(self, item: Range) -> None:
        firsts = self._firsts.setdefault(item.family, [])
        lasts = self._lasts.setdefault(item.family, [])
        if lasts and item.first <= lasts[-1] + 1:
            lasts[-1] = max(lasts[-1], item.last)
        else:
            firsts.append(item.first)
            lasts.append(item.last)

    def __iter__(self) -> Iterator[Range]:
        """The ranges, IPv4 before IPv6, ascending."""
        for family, firsts in self._firsts.items():
            for first, last in zip(firsts, self._lasts[family], strict=True):
                yield Range(family, first, last)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"RangeSet({', '.join(map(str, self))})"

    def union(self, other: Iterable[Range]) -> RangeSet:
        return RangeSet([*self, *other])

    def minus(self, other: RangeSet) -> RangeSet:
        return RangeSet(gap for item in self for gap in other.gaps(item))

    def contains(self, item: Range | Block) -> bool:
        """Does all of it lie in this set?"""
        lasts = self._lasts.get(item.family, [])
        index = bisect_right(self._firsts.get(item.family, []), item.first) - 1
        return index >= 0 and item.last <= lasts[index]

    def within(self, item: Range | Block) -> Iterator[Range]:
        """The parts of the set inside a range, ascending."""
        firsts = self._firsts.get(item.family, [])
        lasts = self._lasts.get(item.family, [])
        for index in range(bisect_left(lasts, item.first), bisect_right(firsts, item.last)):
            yield Range(item.family, max(item.first, firsts[index]), min(item.last, lasts[index]))

    def gaps(self, item: Range | Block) -> Iterator[Range]:
        """The parts of a range that are not in the set, ascending."""
        start = item.first
        for part in self.within(item):
            if start < part.first:
                yield Range(item.family, start, part.first - 1)
            start = part.last + 1
        if start <= item.last:
            yield Range(item.family, start, item.last)

    def count_within(self, item: Range | Block) -> int:
        return sum(part.size for part in self.within(item))

    def blocks(self) -> Iterator[Block]:
        """The fewest blocks that make up the set, in address order."""
        for item in self:
            yield from blocks_of(item)
