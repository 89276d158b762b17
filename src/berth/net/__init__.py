"""Addresses: standard library only, no I/O, no await, no clock. Ints inside, text at the parser's door."""

from berth.net.address import Address, Family
from berth.net.block import Block, block_at, blocks_of
from berth.net.parse import parse_address, parse_block, parse_range
from berth.net.range import Range
from berth.net.rangeset import RangeSet

__all__ = [
    "Address",
    "Block",
    "Family",
    "Range",
    "RangeSet",
    "block_at",
    "blocks_of",
    "parse_address",
    "parse_block",
    "parse_range",
]
