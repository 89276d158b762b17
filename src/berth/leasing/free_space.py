"""One family of a pool: the addresses it may ever lease, and which of them are free now.

There are two kinds. `OrderedRanges` keeps ranges in their order of preference and is made for single
addresses; it serves FIRST and RANDOM. `Buddy` knows only aligned blocks; it serves BEST_FIT and ROUND_ROBIN.
Both take and give back a block, and answer what else a space asks of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from berth.net import Block, Family, Range, RangeSet
from berth.net.block import aligned_runs

new_tuple = tuple.__new__  # makes a Block in a third of the time Block() takes


class FreeSpace(ABC):
    __slots__ = ("_roomiest", "area", "family", "top", "width")

    def __init__(self, family: Family, area: RangeSet) -> None:
        self.family = family
        self.width = family.width
        self.top = family.top
        self.area = area  # all of this family that can ever be leased
        self._roomiest: int | None = None

    @property
    @abstractmethod
    def free(self) -> int:
        """How many addresses are free."""

    @abstractmethod
    def take(self, first: int, length: int) -> bool:
        """Take a block. False, and nothing changed, unless all of it is free (if ranked: in one range)."""

    @abstractmethod
    def give(self, first: int, length: int) -> None:
        """Put back what `take` took."""

    @abstractmethod
    def take_all(self, run: Range) -> None:
        """Take what is ground of a run; all of that must be free."""

    @abstractmethod
    def give_all(self, run: Range) -> None:
        """Put back what is ground of a run; all of that must be taken."""

    @abstractmethod
    def covers(self, first: int, length: int) -> bool:
        """Is all of the block ground and free?"""

    @abstractmethod
    def rank_with_room(self, order: int) -> int:
        """The index of the first range with room for a block of this order, in the order of preference."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The order of the largest block there would be if all were free."""

    @property
    def roomiest(self) -> int:
        if self._roomiest is None:
            self._roomiest = self.largest
        return self._roomiest

    def block(self, first: int, order: int) -> Block:
        return new_tuple(Block, (self.family, first, self.width - order))

    def first_taken(self, block: Block) -> int | None:
        """The lowest address of the block that is ground and not free: there a lease starts."""
        for part in self.area.within(block):
            for first, order in aligned_runs(part.first, part.last):
                if not self.covers(first, self.width - order):
                    return self._first_taken(first, order)
        return None

    def _first_taken(self, first: int, order: int) -> int:
        """By halving: in the lower half unless all of that is free."""
        for half in range(order - 1, -1, -1):
            if self.covers(first, self.width - half):
                first += 1 << half
        return first
