"""Ground for the strategies over blocks. They know no order of ranges, and blocks may span ranges that
touch."""

from __future__ import annotations

from berth.leasing.free_space import FreeSpace
from berth.net import Family, Range, RangeSet
from berth.net.block import aligned_runs
from berth.net.freeblocks import FreeBlocks


class Buddy(FreeSpace):
    __slots__ = ("blocks",)

    def __init__(self, family: Family, area: RangeSet) -> None:
        super().__init__(family, area)
        self.blocks = FreeBlocks(family.width, ((part.first, part.last) for part in area))

    @property
    def free(self) -> int:
        return self.blocks.count

    @property
    def largest(self) -> int:
        return max(order for part in self.area for _, order in aligned_runs(part.first, part.last))

    def rank_with_room(self, order: int) -> int:
        return 0  # ranges have no order here

    def take(self, first: int, length: int) -> bool:
        return self.blocks.take(first, self.width - length)

    def give(self, first: int, length: int) -> None:
        self.blocks.give(first, self.width - length)

    def covers(self, first: int, length: int) -> bool:
        return self.blocks.covers(first, self.width - length)

    def take_all(self, run: Range) -> None:
        for part in self.area.within(run):
            for first, order in aligned_runs(part.first, part.last):
                self.blocks.take(first, order)

    def give_all(self, run: Range) -> None:
        for part in self.area.within(run):
            for first, order in aligned_runs(part.first, part.last):
                self.blocks.give(first, order)
