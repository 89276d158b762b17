"""The one door from text to addresses, ranges and blocks. Nobody else parses.

    address   10.0.0.1   2001:db8::1   ::ffff:10.0.0.1 (IPv4-mapped: becomes 10.0.0.1)
    range     address | address-address | CIDR
    block     CIDR | address; host bits are dropped: 10.0.0.77/24 is 10.0.0.0/24

Refused, since each has been read in two ways by somebody: octets with leading zeros, blanks, zone ids,
netmasks behind the slash, ranges that end before they start. The error names the text. A prefix length is
decimal, leading zeros or not: nobody reads it in another way, and the systems we replace have stored such.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv6Address

from berth.errors import InvalidText
from berth.net.address import Address, Family
from berth.net.block import Block, block_at
from berth.net.range import Range


class FamiliesDiffer(InvalidText):
    """A range from one family to the other."""


class EndsBeforeStart(InvalidText):
    """A range whose last address comes before its first."""


def parse_address(text: str) -> Address:
    family, value = _value(text, f"invalid address {text!r}")
    return Address(*_unmapped(family, value))


def parse_block(text: str) -> Block:
    """A CIDR or an address; host bits are dropped."""
    return _block(text, f"invalid block {text!r}")


def parse_range(text: str) -> Range:
    """An address, `first-last` or a CIDR."""
    fault = f"invalid range {text!r}"
    if "-" not in text:
        return _block(text, fault).range
    first, _, last = text.partition("-")
    return _between(_unmapped(*_value(first, fault)), _unmapped(*_value(last, fault)), fault)


def _between(first: tuple[Family, int], last: tuple[Family, int], fault: str) -> Range:
    if first[0] != last[0]:
        raise FamiliesDiffer(f"{fault}: first and last are not of one family")
    if first[1] > last[1]:
        raise EndsBeforeStart(f"{fault}: it ends before it starts")
    return Range(first[0], first[1], last[1])


def _block(text: str, fault: str) -> Block:
    address, slash, length = text.partition("/")
    family, value = _value(address, fault)
    if not slash:
        return block_at(*_unmapped(family, value))
    bits = _length(length, family, fault)
    if family == 6 and bits >= 96 and _is_mapped(value):
        return block_at(Family.V4, value & 0xFFFFFFFF, bits - 96)
    return block_at(family, value, bits)


def _length(text: str, family: Family, fault: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise InvalidText(f"{fault}: no prefix length after the slash")
    if int(text) > family.width:
        raise InvalidText(f"{fault}: the prefix length is above {family.width}")
    return int(text)


def _value(text: str, fault: str) -> tuple[Family, int]:
    try:
        if ":" in text and "%" not in text and "/" not in text:
            return Family.V6, int(IPv6Address(text))
        return Family.V4, int(IPv4Address(text))
    except AddressValueError:
        raise InvalidText(fault) from None


def _unmapped(family: Family, value: int) -> tuple[Family, int]:
    if family == 6 and _is_mapped(value):
        return Family.V4, value & 0xFFFFFFFF
    return family, value


def _is_mapped(value: int) -> bool:
    return value >> 32 == 0xFFFF
