"""Free numbers as sorted gaps: what the strategies for single addresses search.

A gap is a run first..last of free numbers; gaps never touch. They are kept in two parallel lists, cut into
chunks of a few hundred, so the cost of taking and giving back does not grow with how many gaps there are:

    heads   [ 10,               900,        ... ]     first number of each chunk
    firsts  [[10, 40, 77, ...], [900, 950], ... ]
    lasts   [[19, 44, 80, ...], [920, 999], ... ]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

CHUNK = 512  # a chunk is split when it holds twice as many


class Gaps:
    __slots__ = ("_firsts", "_heads", "_lasts", "count")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        """From ascending runs that do not overlap; runs that touch become one gap."""
        firsts: list[int] = []
        lasts: list[int] = []
        for first, last in runs:
            if lasts and lasts[-1] + 1 == first:
                lasts[-1] = last
            else:
                firsts.append(first)
                lasts.append(last)
        self.count = sum(lasts) - sum(firsts) + len(firsts)
        starts = range(0, len(firsts), CHUNK)
        self._firsts = [firsts[start : start + CHUNK] for start in starts]
        self._lasts = [lasts[start : start + CHUNK] for start in starts]
        self._heads = [chunk[0] for chunk in self._firsts]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for firsts, lasts in zip(self._firsts, self._lasts, strict=True):
            yield from zip(firsts, lasts, strict=True)

    def lowest(self) -> int | None:
        return self._heads[0] if self._heads else None

    def at_or_after(self, number: int) -> int | None:
        """The lowest free number that is not below this one."""
        index = bisect_right(self._heads, number) - 1
        if index < 0:
            return self.lowest()
        lasts = self._lasts[index]
        place = bisect_left(lasts, number)
        if place < len(lasts):
            return max(number, self._firsts[index][place])
        return self._heads[index + 1] if index + 1 < len(self._heads) else None

    def covers(self, first: int, last: int) -> bool:
        """Are all of first..last free?"""
        index = bisect_right(self._heads, first) - 1
        if index < 0:
            return False
        place = bisect_right(self._firsts[index], first) - 1
        return last <= self._lasts[index][place]

    def taken_at_or_after(self, number: int) -> int:
        """The lowest number that is not free and not below this one."""
        index = bisect_right(self._heads, number) - 1
        if index < 0:
            return number
        place = bisect_right(self._firsts[index], number) - 1
        last = self._lasts[index][place]
        return number if last < number else last + 1

    def take(self, first: int, last: int) -> bool:
        """Take first..last out of its gap. False, and nothing changed, unless all of it is free."""
        index = bisect_right(self._heads, first) - 1
        if index < 0:
            return False
        firsts, lasts = self._firsts[index], self._lasts[index]
        place = bisect_right(firsts, first) - 1
        gap_last = lasts[place]
        if last > gap_last:
            return False
        self.count -= last - first + 1
        if first != firsts[place]:
            self._cut_tail(index, place, first, last)
        elif last == gap_last:
            self._drop(index, place)
        else:
            firsts[place] = last + 1
            if not place:
                self._heads[index] = last + 1
        return True

    def give(self, first: int, last: int) -> None:
        """Put first..last back; none of it may be free."""
        self.count += last - first + 1
        index = bisect_right(self._heads, first) - 1
        if index < 0:
            index, place = 0, -1
            if not self._heads:
                self._start(first, last)
                return
        else:
            place = bisect_right(self._firsts[index], first) - 1
        if place >= 0 and self._lasts[index][place] + 1 == first:
            self._lasts[index][place] = last
            self._join(index, place)
        else:
            self._put(index, place + 1, first, last)

    def _start(self, first: int, last: int) -> None:
        self._firsts.append([first])
        self._lasts.append([last])
        self._heads.append(first)

    def _put(self, index: int, place: int, first: int, last: int) -> None:
        """A gap whose lower neighbour does not touch it: before an upper neighbour that may."""
        firsts = self._firsts[index]
        if place < len(firsts) and firsts[place] == last + 1:
            firsts[place] = first
            if not place:
                self._heads[index] = first
        elif place == len(firsts) and self._next_head(index) == last + 1:
            self._firsts[index + 1][0] = self._heads[index + 1] = first
        else:
            self._insert(index, place, first, last)

    def _insert(self, index: int, place: int, first: int, last: int) -> None:
        firsts, lasts = self._firsts[index], self._lasts[index]
        firsts.insert(place, first)
        lasts.insert(place, last)
        if not place:
            self._heads[index] = first
        if len(firsts) > 2 * CHUNK:
            self._split(index)

    def _join(self, index: int, place: int) -> None:
        """The gap here has grown at its end: swallow its upper neighbour if they touch now."""
        after = self._lasts[index][place] + 1
        firsts = self._firsts[index]
        if place + 1 < len(firsts):
            if firsts[place + 1] == after:
                self._lasts[index][place] = self._lasts[index][place + 1]
                self._drop(index, place + 1)
        elif self._next_head(index) == after:
            self._lasts[index][place] = self._lasts[index + 1][0]
            self._drop(index + 1, 0)

    def _next_head(self, index: int) -> int | None:
        return self._heads[index + 1] if index + 1 < len(self._heads) else None

    def _cut_tail(self, index: int, place: int, first: int, last: int) -> None:
        """Take first..last out of the inside or the end of a gap."""
        lasts = self._lasts[index]
        gap_last = lasts[place]
        lasts[place] = first - 1
        if last < gap_last:
            self._insert(index, place + 1, last + 1, gap_last)

    def _drop(self, index: int, place: int) -> None:
        firsts, lasts = self._firsts[index], self._lasts[index]
        del firsts[place], lasts[place]
        if not firsts:
            del self._firsts[index], self._lasts[index], self._heads[index]
        elif not place:
            self._heads[index] = firsts[0]

    def _split(self, index: int) -> None:
        firsts, lasts = self._firsts[index], self._lasts[index]
        self._firsts.insert(index + 1, firsts[CHUNK:])
        self._lasts.insert(index + 1, lasts[CHUNK:])
        self._heads.insert(index + 1, firsts[CHUNK])
        del firsts[CHUNK:], lasts[CHUNK:]
