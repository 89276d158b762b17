"""A pool as sets of single addresses: what the engine does with ints and indexes, done the slow and obvious
way."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from berth.leasing import Claim, Lease, Pool
from berth.net import Block, Family, Range, block_at

Spot = tuple[Family, int]


def spots(item: Range | Block) -> set[Spot]:
    return {(item.family, value) for value in range(item.first, item.last + 1)}


def all_spots(items: Iterable[Range | Block]) -> set[Spot]:
    return {spot for item in items for spot in spots(item)}


class Rigged(Random):
    """Draws the number it is told."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def getrandbits(self, bits: int, /) -> int:
        return self.number


class Naive:
    """One pool and its leases."""

    def __init__(self, pool: Pool, leases: Iterable[Lease] = ()) -> None:
        self.pool = pool
        self.leases = list(leases)
        self.total = all_spots(pool.ranges) - all_spots(pool.exclusions)
        self.reserved = self.total & all_spots(pool.reservations.values())
        self.ground = self.total - self.reserved

    @property
    def covered(self) -> set[Spot]:
        return all_spots(lease.block for lease in self.leases)

    @property
    def free(self) -> set[Spot]:
        return self.ground - self.covered

    def of(self, holder: str) -> list[Block]:
        return [lease.block for lease in self.leases if lease.holder == holder]

    def overlapping(self, block: Block) -> list[Lease]:
        return [lease for lease in self.leases if lease.block.overlaps(block)]

    def candidates(self, claim: Claim) -> list[tuple[int, Block]]:
        """Every free block the claim could have that lies in what one range has for itself, with its rank."""
        free, mine = self.free, set[Spot]()
        found = []
        for rank, item in enumerate(self.pool.ranges):
            own = spots(item) - mine
            mine |= own
            if claim.family in (None, item.family):
                found += [(rank, block) for block in _blocks(claim, item, own & free)]
        return found

    def anywhere(self, claim: Claim) -> list[Block]:
        """Every free block the claim could have, also across ranges that touch."""
        free = self.free
        found = {block for item in self.pool.ranges for block in _blocks(claim, item, free)}
        return [block for block in found if claim.family in (None, block.family)]

    def first(self, claim: Claim) -> Block | None:
        found = self.candidates(claim)
        return min(found, key=lambda one: (one[0], one[1].first))[1] if found else None

    def at_random(self, claim: Claim, number: int) -> tuple[Block | None, int]:
        """metal3's rule with a given draw: the block, and the draw cut to the size of its range."""
        found = self.candidates(claim)
        if not found:
            return None, 0
        rank = min(found, key=lambda one: one[0])[0]
        item = self.pool.ranges[rank]
        drawn = number % item.size
        blocks = sorted(block for one, block in found if one == rank)
        after = [block for block in blocks if block.first >= item.first + drawn]
        return (after or blocks)[0], drawn


def _blocks(claim: Claim, item: Range, free: set[Spot]) -> list[Block]:
    width = item.family.width
    length = width if claim.length is None else claim.length
    if not 0 <= length <= width or 1 << (width - length) > item.size + len(free):
        return []
    found = {block_at(item.family, value, length) for _, value in spots(item)}
    return [block for block in found if spots(block) <= free]
