"""One address: a family and an int. Everything inside computes with ints; this file has the canonical text.

Parsing is `net/parse.py`'s; here is only the way back. IPv6 text follows RFC 5952: lower case, the longest
run of two or more zero groups compressed, the first run on a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Family(IntEnum):
    width: int  # bits of an address of this family
    top: int  # the highest address as an int

    V4 = 4
    V6 = 6

    def __init__(self, number: int) -> None:
        """Computed once: every range and block that is made asks."""
        self.width = 32 if number == 4 else 128
        self.top = (1 << self.width) - 1


@dataclass(frozen=True, slots=True)
class Address:
    """Ordered within its family; comparing across families is a TypeError, as there is no such order."""

    family: Family
    value: int

    def __post_init__(self) -> None:
        if not 0 <= self.value <= self.family.top:
            raise ValueError(f"{self.value} is no IPv{self.family:d} address")

    def __str__(self) -> str:
        return text_of(self.family, self.value)

    def __lt__(self, other: Address) -> bool:
        return self.value < self._comparable(other)

    def __le__(self, other: Address) -> bool:
        return self.value <= self._comparable(other)

    def __gt__(self, other: Address) -> bool:
        return self.value > self._comparable(other)

    def __ge__(self, other: Address) -> bool:
        return self.value >= self._comparable(other)

    def _comparable(self, other: Address) -> int:
        if not isinstance(other, Address) or self.family != other.family:
            raise TypeError(f"{self} and {other} are not of one family and cannot be compared")
        return other.value


def text_of(family: Family, value: int) -> str:
    """The canonical text of an address."""
    return _text_v4(value) if family == 4 else _text_v6(value)


def _text_v4(value: int) -> str:
    return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"


def _text_v6(value: int) -> str:
    groups = [f"{value >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
    start, length = _longest_zeros(groups)
    if length < 2:
        return ":".join(groups)
    return f"{':'.join(groups[:start])}::{':'.join(groups[start + length :])}"


def _longest_zeros(groups: list[str]) -> tuple[int, int]:
    """Where the longest run of zero groups starts and how long it is; the first one on a tie."""
    best = (0, 0)
    start = 0
    for index, group in enumerate([*groups, "end"]):
        if group != "0":
            best = max(best, (start, index - start), key=lambda run: run[1])
            start = index + 1
    return best
