"""The one door from text to addresses, ranges and blocks. Nobody else parses.

    address   10.0.0.1   2001:db8::1   ::ffff:10.0.0.1 (IPv4-mapped: becomes 10.0.0.1)
    range     address | address-address | CIDR
    block     CIDR | address; host bits are dropped: 10.0.0.77/24 is 10.0.0.0/24

Refused, since each has been read in two ways by somebody: octets with leading zeros, blanks, zone ids,
netmasks behind the slash, ranges that end before they start. The error names the text. A prefix length is
decimal, leading zeros or not: nobody reads it in another way, and the systems we replace have stored such.

So is an IPv6 range that has IPv4-mapped addresses in it (::/64 has them all): what is given out of it would
be written as IPv6 and read back as IPv4. A block is refused only as a range: its own text, ::/80, is IPv6.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv6Address
from socket import AF_INET, AF_INET6, inet_pton

from berth.errors import InvalidText
from berth.net.address import Address, Family
from berth.net.block import Block, block_at
from berth.net.range import Range

V4, V6 = Family.V4, Family.V6
FIRST_MAPPED, LAST_MAPPED = 0xFFFF << 32, (0xFFFF << 32) + 0xFFFFFFFF
MAPPED = "it has addresses of ::ffff:0:0/96, which are IPv4 addresses in IPv6 form; leave those out"


class FamiliesDiffer(InvalidText):
    """A range from one family to the other."""


class EndsBeforeStart(InvalidText):
    """A range whose last address comes before its first."""


class TouchesMapped(InvalidText):
    """An IPv6 range with IPv4-mapped addresses in it."""


def parse_address(text: str) -> Address:
    return Address(*_unmapped(*_value(text, "address", text)))


def parse_host(text: str) -> Block:
    """An address as the block it is; no CIDR."""
    family, value = _value(text, "address", text)
    if family is V6 and _is_mapped(value):
        return Block(V4, value & 0xFFFFFFFF, 32)
    return Block(family, value, family.width)


def is_address(text: str) -> bool:
    """Is it one that `parse_address` reads?"""
    try:
        _value(text, "address", text)
    except InvalidText:
        return False
    return True


def parse_block(text: str) -> Block:
    """A CIDR or an address; host bits are dropped."""
    return _block(text, "block")


def parse_range(text: str) -> Range:
    """An address, `first-last` or a CIDR."""
    if "-" not in text:
        run = _block(text, "range").range
    else:
        first, _, last = text.partition("-")
        start, end = (_unmapped(*_value(edge, "range", text)) for edge in (first, last))
        run = _between(start, end, f"invalid range {text!r}")
    return readable(run, f"invalid range {text!r}")


def readable(run: Range, fault: str) -> Range:
    """The range, if each of its addresses is the same when it is read back from its text."""
    if run.family == 6 and run.first <= LAST_MAPPED and run.last >= FIRST_MAPPED:
        raise TouchesMapped(f"{fault}: {MAPPED}")
    return run


def _between(first: tuple[Family, int], last: tuple[Family, int], fault: str) -> Range:
    if first[0] != last[0]:
        raise FamiliesDiffer(f"{fault}: first and last are not of one family")
    if first[1] > last[1]:
        raise EndsBeforeStart(f"{fault}: it ends before it starts")
    return Range(first[0], first[1], last[1])


def _block(text: str, what: str) -> Block:
    address, slash, length = text.partition("/")
    family, value = _value(address, what, text)
    if not slash:
        return block_at(*_unmapped(family, value))
    bits = _length(length, family, f"invalid {what} {text!r}")
    if family == 6 and bits >= 96 and _is_mapped(value):
        return block_at(Family.V4, value & 0xFFFFFFFF, bits - 96)
    return block_at(family, value, bits)


def _length(text: str, family: Family, fault: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise InvalidText(f"{fault}: no prefix length after the slash")
    if int(text) > family.width:
        raise InvalidText(f"{fault}: the prefix length is above {family.width}")
    return int(text)


def _value(text: str, what: str, whole: str) -> tuple[Family, int]:
    """By the C library, several times as quick: a pool may name 50,000. Its no is looked at again."""
    try:
        if ":" in text:
            return V6, int.from_bytes(inet_pton(AF_INET6, text))
        return V4, int.from_bytes(inet_pton(AF_INET, text))
    except (OSError, ValueError):
        return _value_in_full(text, what, whole)


def _value_in_full(text: str, what: str, whole: str) -> tuple[Family, int]:
    try:
        if ":" in text and "%" not in text and "/" not in text:
            return V6, int(IPv6Address(text))
        return V4, int(IPv4Address(text))
    except AddressValueError:
        raise InvalidText(f"invalid {what} {whole!r}") from None


def _unmapped(family: Family, value: int) -> tuple[Family, int]:
    if family == 6 and _is_mapped(value):
        return Family.V4, value & 0xFFFFFFFF
    return family, value


def _is_mapped(value: int) -> bool:
    return value >> 32 == 0xFFFF
