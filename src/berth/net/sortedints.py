"""A sorted set of ints that stays quick at a million: chunks of a few hundred, found by bisection.

One Python list would move half its entries with every insertion in the middle; a chunk moves a few hundred,
and the list of chunk heads stays short.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

CHUNK = 512  # entries at which a chunk is split is twice this


class SortedInts:
    __slots__ = ("_chunks", "_heads")

    def __init__(self, values: Iterable[int] = ()) -> None:
        ordered = sorted(set(values))
        self._chunks = [ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK)]
        self._heads = [chunk[0] for chunk in self._chunks]

    def __bool__(self) -> bool:
        return bool(self._heads)

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks:
            yield from chunk

    def __contains__(self, value: int) -> bool:
        index = bisect_right(self._heads, value) - 1
        if index < 0:
            return False
        chunk = self._chunks[index]
        place = bisect_left(chunk, value)
        return place < len(chunk) and chunk[place] == value

    def lowest(self) -> int | None:
        return self._heads[0] if self._heads else None

    def at_or_after(self, value: int) -> int | None:
        """The lowest entry that is not below the value."""
        index = bisect_right(self._heads, value) - 1
        if index < 0:
            return self.lowest()
        chunk = self._chunks[index]
        place = bisect_left(chunk, value)
        if place < len(chunk):
            return chunk[place]
        return self._heads[index + 1] if index + 1 < len(self._heads) else None

    def add(self, value: int) -> None:
        """The value must not be in the set."""
        index = max(bisect_right(self._heads, value) - 1, 0)
        if not self._heads:
            self._chunks.append([])
            self._heads.append(value)
        chunk = self._chunks[index]
        insort(chunk, value)
        self._heads[index] = chunk[0]
        if len(chunk) > 2 * CHUNK:
            self._split(index)

    def remove(self, value: int) -> None:
        """The value must be in the set."""
        index = bisect_right(self._heads, value) - 1
        chunk = self._chunks[index]
        del chunk[bisect_left(chunk, value)]
        if chunk:
            self._heads[index] = chunk[0]
        else:
            del self._chunks[index], self._heads[index]

    def _split(self, index: int) -> None:
        chunk = self._chunks[index]
        upper = chunk[CHUNK:]
        del chunk[CHUNK:]
        self._chunks.insert(index + 1, upper)
        self._heads.insert(index + 1, upper[0])
