"""kubipam's choice of a block, written down as its contract tells it: one list of blocks, walked from the
start.

Slow and literal on purpose (contract 2.5 to 2.7, with the "Build" notes): the engine, which finds the same
blocks by index, is compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from berth.net import Block, Family, Range, RangeSet

CELL = 64


@dataclass
class Item:
    """Big blocks are free or taken as a whole; up to 64 addresses, a bitmap says what is free."""

    first: int
    size: int
    free: list[bool] | bool

    @property
    def last(self) -> int:
        return self.first + self.size - 1

    def is_all(self, state: bool) -> bool:
        return self.free is state if isinstance(self.free, bool) else all(bit is state for bit in self.free)

    def hole(self, size: int, cursor: int) -> int | None:
        """The lowest aligned free hole of this size that starts at or after the cursor."""
        if isinstance(self.free, bool):
            start = max(self.first, cursor)
            return start if self.free and start + size - 1 <= self.last else None
        for start in range(self.first, self.last + 1, size):
            offset = start - self.first
            if start >= cursor and size <= self.size and all(self.free[offset : offset + size]):
                return start
        return None


class Walk:
    def __init__(self, family: Family, ranges: list[Range]) -> None:
        self.family = family
        self.width = family.width
        blocks = RangeSet(ranges).blocks()
        self.items = [Item(b.first, b.size, _bitmap(b.size, True)) for b in blocks]
        self.cursors: dict[int, int] = {}

    def grant(self, length: int, cursor: int = 0) -> Block | None:
        """Rule 2.5; with a cursor, 2.6."""
        size = 1 << (self.width - length)
        kept = self._kept(size, cursor)
        if kept is None:
            return None
        while kept.size > size and kept.size > CELL:
            lower, upper = self._halve(kept)
            kept = upper if cursor > lower.last else lower
        start = kept.hole(size, cursor)
        assert start is not None
        self._mark(kept, start, size, False)
        return Block(self.family, start, length)

    def grant_next(self, length: int) -> Block | None:
        """Rule 2.6: from the cursor on, else once more over everything."""
        block = self.grant(length, self.cursors.get(length, 0)) or self.grant(length)
        if block is not None:
            self.cursors[length] = block.last + 1
            if block.last == self.family.top:
                del self.cursors[length]
        return block

    def exact(self, block: Block) -> bool:
        """Rule 2.7: granted if the whole block lies in one free area."""
        return self._set(block, True, False)

    def release(self, block: Block) -> None:
        assert self._set(block, False, True)

    def _kept(self, size: int, cursor: int) -> Item | None:
        kept: Item | None = None
        for item in self.items:
            serves = item.last >= cursor and item.size >= size and item.hole(size, cursor) is not None
            if serves and (kept is None or item.size < kept.size):
                kept = item
                if item.size == size or (item.size == CELL and not item.is_all(True)):
                    break
        return kept

    def _set(self, block: Block, before: bool, after: bool) -> bool:
        holding = [i for i in self.items if i.first <= block.first and block.last <= i.last]
        if not holding:
            return False
        item = holding[0]
        while item.size > block.size and item.size > CELL:
            lower, upper = self._halve(item)
            item = upper if block.first > lower.last else lower
        offset = block.first - item.first
        states = [item.free] if isinstance(item.free, bool) else item.free[offset : offset + block.size]
        fine = all(state is before for state in states)
        if fine:
            self._mark(item, block.first, block.size, after)
        else:
            self._merge()
        return fine

    def _halve(self, item: Item) -> tuple[Item, Item]:
        half = item.size // 2
        state = item.is_all(True)
        halves = (
            Item(item.first, half, _bitmap(half, state)),
            Item(item.first + half, half, _bitmap(half, state)),
        )
        index = self.items.index(item)
        self.items[index : index + 1] = halves
        return halves

    def _mark(self, item: Item, start: int, size: int, state: bool) -> None:
        if isinstance(item.free, bool):
            item.free = state
        else:
            offset = start - item.first
            item.free[offset : offset + size] = [state] * size
        self._merge()

    def _merge(self) -> None:
        """Buddies upwards as far as possible. (Blocks below 64 never come into being after the start.)"""
        index = 0
        while index + 1 < len(self.items):
            one, two = self.items[index], self.items[index + 1]
            buddies = one.size == two.size and two.first == one.first ^ one.size and one.size >= CELL
            state = one.is_all(True)
            if buddies and one.is_all(state) and two.is_all(state):
                self.items[index : index + 2] = [Item(one.first, one.size * 2, state)]
                index = max(index - 1, 0)
            else:
                index += 1


def _bitmap(size: int, state: bool) -> list[bool] | bool:
    return [state] * size if size <= CELL else state
