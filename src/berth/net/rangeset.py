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
        by_family: dict[Family, list[tuple[int, int]]] = {}
        for item in ranges:
            by_family.setdefault(item.family, []).append((item.first, item.last))
        for family in sorted(by_family):
            self._firsts[family], self._lasts[family] = _merged(sorted(by_family[family]))
        self.count = sum(
            sum(lasts) - sum(self._firsts[family]) + len(lasts) for family, lasts in self._lasts.items()
        )

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

    __or__ = union
    __sub__ = minus

    def __and__(self, other: RangeSet) -> RangeSet:
        return self.minus(self.minus(other))

    def contains(self, item: Range | Block) -> bool:
        """Does all of it lie in this set?"""
        lasts = self._lasts.get(item.family, [])
        index = bisect_right(self._firsts.get(item.family, []), item.first) - 1
        return index >= 0 and item.last <= lasts[index]

    def holds(self, family: Family, value: int) -> bool:
        """Is this one address in the set?"""
        index = bisect_right(self._firsts.get(family, ()), value) - 1
        return index >= 0 and value <= self._lasts[family][index]

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


def _merged(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Ascending firsts and lasts of what the pairs cover; what touches is one."""
    firsts: list[int] = []
    lasts: list[int] = []
    end = -2
    for first, last in pairs:
        if first > end + 1:
            firsts.append(first)
            lasts.append(last)
            end = last
        elif last > end:
            lasts[-1] = end = last
    return firsts, lasts
