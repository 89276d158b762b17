"""Totals for status, metrics and console; ints of any size, since a pool can have 2**128 addresses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """total = used + free + reserved."""

    total: int = 0  # addresses in the ranges, without the exclusions
    used: int = 0  # of those, leased
    free: int = 0  # of those, for anyone
    reserved: int = 0  # of those, waiting for the claim they are reserved for
    outside: int = 0  # leased, but not in the total: excluded, or left over from an earlier shape of the pool

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.total + other.total,
            self.used + other.used,
            self.free + other.free,
            self.reserved + other.reserved,
            self.outside + other.outside,
        )
