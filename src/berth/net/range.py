"""A range: first to last of one family, both included."""

from __future__ import annotations

from dataclasses import dataclass

from berth.net.address import Family, text_of


@dataclass(frozen=True, slots=True)
class Range:
    family: Family
    first: int
    last: int

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last <= self.family.top:
            raise ValueError(f"{self.first} to {self.last} is no range of IPv{self.family:d}")

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def contains(self, value: int) -> bool:
        return self.first <= value <= self.last

    def __str__(self) -> str:
        first = text_of(self.family, self.first)
        return first if self.first == self.last else f"{first}-{text_of(self.family, self.last)}"
