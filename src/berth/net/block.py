"""A block: an aligned CIDR, a single address included. What a lease gives.

Also the arithmetic of alignment: which blocks make up a run of addresses, and which block of a length holds
an address.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from berth.net.address import Family, text_of
from berth.net.range import Range


class Block(NamedTuple):
    """A tuple rather than a dataclass: every decision makes one, and a tuple is made three times as fast.

    `first` must be aligned to `length`; `parse_block`, `block_at` and `blocks_of` see to it.
    """

    family: Family
    first: int
    length: int

    @property
    def size(self) -> int:
        return 1 << (self.family.width - self.length)

    @property
    def last(self) -> int:
        return self.first + (1 << (self.family.width - self.length)) - 1

    @property
    def is_address(self) -> bool:
        return self.length == self.family.width

    @property
    def address(self) -> str:
        """The canonical text of the first address, without the length."""
        return text_of(self.family, self.first)

    @property
    def range(self) -> Range:
        return Range(self.family, self.first, self.last)

    def covers(self, other: Block) -> bool:
        """Does the other block lie in this one?"""
        return self.family == other.family and self.first <= other.first and other.last <= self.last

    def overlaps(self, other: Block) -> bool:
        """Blocks are nested or apart, so overlapping is covering one way or the other."""
        return self.covers(other) or other.covers(self)

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


def block_at(family: Family, value: int, length: int | None = None) -> Block:
    """The block of this length that holds the address (host bits dropped); no length: the address itself."""
    width = family.width
    if length is None:
        return Block(family, value, width)
    if not 0 <= length <= width:
        raise ValueError(f"IPv{family:d} has no blocks of length {length}")
    shift = width - length
    return Block(family, value >> shift << shift, length)


def blocks_of(run: Range) -> Iterator[Block]:
    """The fewest blocks that make up a range, in address order."""
    width = run.family.width
    for first, order in aligned_runs(run.first, run.last):
        yield Block(run.family, first, width - order)


def aligned_runs(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut first..last into the fewest runs of 2**order numbers that start at a multiple of their size."""
    while first <= last:
        order = (last - first + 1).bit_length() - 1
        if first:
            order = min(order, (first & -first).bit_length() - 1)
        yield first, order
        first += 1 << order
