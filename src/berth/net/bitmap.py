"""A cell of 64 numbers as one int, bit i set when number i is free: aligned holes found without loops over
bits.

`GRID[k]` marks the multiples of 2**k. Folding a bitmap k times leaves a bit at each aligned start of 2**k
free numbers, which is all that first fit inside a cell needs.
"""

from __future__ import annotations

from collections.abc import Iterator

ORDER = 6  # a cell is 2**6 numbers
ALL = (1 << (1 << ORDER)) - 1
GRID = tuple(sum(1 << bit for bit in range(0, 64, 1 << k)) for k in range(ORDER + 1))
_EACH_2, _EACH_4, _EACH_8, _EACH_16, _EACH_32 = GRID[1:ORDER]


def mask(offset: int, order: int) -> int:
    """The bits of the 2**order numbers from offset on."""
    return ((1 << (1 << order)) - 1) << offset


def holes(bits: int, order: int) -> int:
    """A bit at each aligned start of 2**order free numbers."""
    for k in range(order):
        bits &= bits >> (1 << k) & GRID[k + 1]
    return bits


def widest(bits: int) -> int:
    """The order of the largest aligned hole, -1 if there is none. Unrolled: every change of a cell asks."""
    if not bits:
        return -1
    bits &= bits >> 1 & _EACH_2
    if not bits:
        return 0
    bits &= bits >> 2 & _EACH_4
    if not bits:
        return 1
    bits &= bits >> 4 & _EACH_8
    if not bits:
        return 2
    bits &= bits >> 8 & _EACH_16
    if not bits:
        return 3
    bits &= bits >> 16
    if not bits & _EACH_32:
        return 4
    return 6 if bits & bits >> 32 & 1 else 5


def lowest(bits: int) -> int:
    """The offset of the lowest set bit; there must be one."""
    return (bits & -bits).bit_length() - 1


def pieces(bits: int) -> Iterator[tuple[int, int]]:
    """The fewest aligned pieces, as offset and order, that make up the set bits."""
    for order in range(ORDER, -1, -1):
        starts = holes(bits, order)
        while starts:
            offset = lowest(starts)
            yield offset, order
            starts &= starts - 1
            bits &= ~mask(offset, order)
