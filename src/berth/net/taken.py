"""Which of the numbers 0..size-1 are taken: bitmaps of 64 in levels, kept in dictionaries.

A bit on level 0 is one number, on level 1 a full cell of 64, on level 2 a full run of 4,096, and so on. A
full cell is not kept: the bit above it says so. Cells with nothing taken are not kept either, so an empty
/64 costs nothing, a full one a few bits, and a lookup one hash for every level in use:

    level 1   {0: 0b...0001}                     0..63 are all taken
    level 0   {1: 0b...0101, 9: 0b...1000}       so are 64, 66 and 579

The lowest free number is always known. The next free one is found by climbing to a level with room and down
again.
"""

from __future__ import annotations

from collections.abc import Iterator

from berth.net.bitmap import ALL, lowest

BIT = tuple(1 << place for place in range(64))


class TakenSet:
    __slots__ = ("_cells", "_levels", "_lowest", "count", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0  # taken
        self._lowest = 0
        self._cells: dict[int, int] = {}
        self._levels = [self._cells]

    def lowest_free(self) -> int | None:
        return self._lowest if self._lowest < self.size else None

    def is_taken(self, number: int) -> bool:
        for cells in self._levels:
            bits = cells.get(number >> 6)
            if bits is not None:
                return bits >> (number & 63) & 1 == 1
            number >>= 6
        return False

    def free_at_or_after(self, number: int) -> int | None:
        bits = self._cells.get(number >> 6)
        if bits is not None:
            room = (ALL ^ bits) >> (number & 63)
            if room:
                number += (room & -room).bit_length() - 1
                return number if number < self.size else None
        elif len(self._levels) == 1 and number < self.size:
            return number
        return self._climb(number)

    def _climb(self, number: int) -> int | None:
        """Leave the largest full run that holds the number, until none does."""
        while number < self.size:
            for level in range(len(self._levels) - 1, -1, -1):
                place = number >> 6 * level
                bits = self._levels[level].get(place >> 6, 0)
                if bits >> (place & 63) & 1:
                    room = (ALL ^ bits) >> (place & 63)
                    place = place + lowest(room) if room else (place | 63) + 1
                    number = place << 6 * level
                    break
            else:
                return number
        return None

    def add(self, number: int) -> bool:
        """Take one number. False, and nothing changed, if it is taken."""
        cells = self._cells
        cell = number >> 6
        bits = cells.get(cell)
        if bits is None:
            if len(self._levels) > 1 and self.is_taken(number):
                return False
            bits = 0
        elif bits & BIT[number & 63]:
            return False
        bits |= BIT[number & 63]
        if bits == ALL:
            del cells[cell]
            self._fill(1, cell)
        else:
            cells[cell] = bits
        self.count += 1
        if number == self._lowest:
            self._step(number + 1)
        return True

    def remove(self, number: int) -> None:
        """Free one number; it must be taken."""
        cell = number >> 6
        bits = self._cells.get(cell)
        if bits is None:
            self._open(1, cell)
            bits = ALL
        bits ^= BIT[number & 63]
        if bits:
            self._cells[cell] = bits
        else:
            del self._cells[cell]
        self.count -= 1
        if number < self._lowest:
            self._lowest = number

    def add_run(self, first: int, last: int) -> None:
        """Take first..last; all of them must be free."""
        self._set(0, first, last)
        self.count += last - first + 1
        if first == self._lowest:
            self._step(last + 1)

    def remove_run(self, first: int, last: int) -> None:
        """Free first..last; all of them must be taken."""
        self._clear(0, first, last)
        self.count -= last - first + 1
        self._lowest = min(self._lowest, first)

    def runs(self) -> Iterator[tuple[int, int]]:
        """What is taken, as first and last, in no particular order."""
        for level, cells in enumerate(self._levels):
            for cell, bits in cells.items():
                while bits:
                    first = (cell << 6) + lowest(bits) << 6 * level
                    yield first, first + (1 << 6 * level) - 1
                    bits &= bits - 1

    def _step(self, number: int) -> None:
        following = self.free_at_or_after(number)
        self._lowest = self.size if following is None else following

    def _fill(self, level: int, place: int) -> None:
        """Set one bit of a level; if that fills its cell, one of the level above instead."""
        if level == len(self._levels):
            self._levels.append({})
        cells = self._levels[level]
        bits = cells.get(place >> 6, 0) | BIT[place & 63]
        if bits == ALL:
            del cells[place >> 6]
            self._fill(level + 1, place >> 6)
        else:
            cells[place >> 6] = bits

    def _open(self, level: int, place: int) -> None:
        """Clear one bit of a level; if its cell is not there, it is full by the level above."""
        cells = self._levels[level]
        bits = cells.get(place >> 6)
        if bits is None:
            self._open(level + 1, place >> 6)
            bits = ALL
        bits ^= BIT[place & 63]
        if bits:
            cells[place >> 6] = bits
        else:
            del cells[place >> 6]

    def _set(self, level: int, first: int, last: int) -> None:
        """Set the bits first..last of a level; whole cells are bits of the level above."""
        if level == len(self._levels):
            self._levels.append({})
        cells = self._levels[level]
        whole, edges = _cut(first, last)
        for cell, mask in edges:
            bits = cells.get(cell, 0) | mask
            if bits == ALL:
                del cells[cell]
                self._fill(level + 1, cell)
            else:
                cells[cell] = bits
        if whole:
            self._set(level + 1, whole[0], whole[-1])

    def _clear(self, level: int, first: int, last: int) -> None:
        """Clear the bits first..last of a level; whole cells are bits of the level above."""
        cells = self._levels[level]
        whole, edges = _cut(first, last)
        for cell, mask in edges:
            bits = cells.get(cell)
            if bits is None:
                self._open(level + 1, cell)
                bits = ALL
            bits ^= mask
            if bits:
                cells[cell] = bits
            else:
                del cells[cell]
        if whole:
            self._clear(level + 1, whole[0], whole[-1])


def _cut(first: int, last: int) -> tuple[range, list[tuple[int, int]]]:
    """The cells that lie in first..last entirely, and the others it touches with a mask of their bits."""
    whole = range(first + 63 >> 6, last + 1 >> 6)
    edges = [
        (cell, _mask(cell, first, last))
        for cell in dict.fromkeys((first >> 6, last >> 6))
        if cell not in whole
    ]
    return whole, edges


def _mask(cell: int, first: int, last: int) -> int:
    start, end = max(first, cell << 6) & 63, min(last, cell << 6 | 63) & 63
    return (1 << end + 1) - (1 << start)
