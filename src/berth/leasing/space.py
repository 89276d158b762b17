"""The memory of one pool: what it may lease now. Ranges − exclusions − reservations − leases.

Taking and releasing are synchronous and quick, whatever the pool's size and fill. Leases come from two
sides: `take` is for decisions and refuses an overlap; `adopt` is for what was found taken, and records it
whatever it is: outside of the ranges, excluded, reserved, or even overlapping another lease. What two leases
claim becomes free when the last of them is released.

Most leases are *plain*: all of the block was free ground. The few others are listed in `_odd` (sorted, so
that an overlap is found quickly) and `_doubles` (those that overlap an earlier lease).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from random import Random

from berth.errors import Taken
from berth.leasing.build import lay_out
from berth.leasing.free_space import FreeSpace
from berth.leasing.leases import Leases
from berth.leasing.model import Lease, Pool, Strategy
from berth.leasing.usage import Usage
from berth.net import Block, Family, Range, RangeSet
from berth.net.sortedints import SortedInts

UNKNOWN_HOLDER = "(someone)"  # holder of a block the ledger calls taken without saying by whom


class Space:
    __slots__ = (
        "_doubles",
        "_grounds",
        "_leases",
        "_odd",
        "_outside",
        "_reserved",
        "_reserved_used",
        "_total",
        "cursors",
        "goes_round",
        "grounds",
        "pool",
        "random",
    )

    def __init__(self, pool: Pool, leases: Iterable[tuple[Block, str]] = ()) -> None:
        self.cursors: dict[int, int] = {}  # ROUND_ROBIN: length → where to look for the next
        self._lay_out(pool, leases)

    def _lay_out(self, pool: Pool, leases: Iterable[tuple[Block, str]]) -> None:
        self.pool = pool
        self.grounds: dict[Family, FreeSpace] = lay_out(pool)
        self._grounds = tuple(self.grounds.values())
        self.goes_round = pool.strategy is Strategy.ROUND_ROBIN
        self.random = Random() if pool.strategy is Strategy.RANDOM else None
        self._total = RangeSet(pool.ranges).minus(RangeSet(pool.exclusions))
        reserved = RangeSet(block.range for block in pool.reservations.values())
        self._reserved = reserved.minus(reserved.minus(self._total))
        self._leases = Leases()
        self._odd: dict[Family, SortedInts] = {family: SortedInts() for family in Family}
        self._doubles: list[Lease] = []
        self._outside = self._reserved_used = 0
        for block, holder in leases:
            self.adopt(block, holder)

    def edit(self, pool: Pool) -> None:
        """Change the pool in place, so that a decision being committed meanwhile still finds its space."""
        if pool != self.pool:
            self._lay_out(pool, list(self.leases()))
        if pool.strategy is not Strategy.ROUND_ROBIN:
            self.cursors.clear()

    def leases(self) -> Iterator[Lease]:
        yield from self._leases
        yield from self._doubles

    def leases_of(self, holder: str) -> tuple[Block, ...]:
        return self._leases.of(holder)

    def holder_of(self, block: Block) -> str | None:
        """Who holds this block, a part of it, or a block it is part of?"""
        lease = self.overlapping(block)
        return None if lease is None else lease.holder

    def contains(self, block: Block) -> bool:
        """Does the block lie in the pool: in its ranges, and not excluded?"""
        return self._total.contains(block)

    def is_free(self, block: Block) -> bool:
        """Could anyone have exactly this block now?"""
        ground = self.grounds.get(block.family)
        return ground is not None and ground.covers(block.first, block.length)

    def grounds_for(self, family: Family | None) -> tuple[FreeSpace, ...]:
        """The families of this pool a claim may be served from, the one preferred first."""
        if family is None:
            return self._grounds
        ground = self.grounds.get(family)
        return () if ground is None else (ground,)

    def move_cursor(self, block: Block) -> None:
        """The next block of this length is looked for behind this one; past the last address means anew."""
        after = block.last + 1
        if after > block.family.top:
            self.cursors.pop(block.length, None)
        else:
            self.cursors[block.length] = after

    def take(self, block: Block, holder: str) -> None:
        """Taken if another lease overlaps; what one already holds is taken with success, and no change."""
        current = self._leases.holder_at(block)
        if current is not None:
            if current == holder:
                return
            if current != UNKNOWN_HOLDER:
                raise Taken(block, current)
            self._leases.remove(block, UNKNOWN_HOLDER)
        else:
            ground = self.grounds.get(block.family)
            if ground is None or not ground.take(block.first, block.length):
                self._take_odd(block)
        self._leases.add(block, holder)

    def _take_odd(self, block: Block) -> None:
        lease = self.overlapping(block)
        if lease is not None:
            raise Taken(block, lease.holder)
        self._cover(block.range)
        self._odd[block.family].add(block.first)

    def adopt(self, block: Block, holder: str) -> None:
        """Record what was found taken, whatever it is."""
        try:
            self.take(block, holder)
        except Taken:
            if block in self._leases.of(holder):
                return
            if holder != UNKNOWN_HOLDER and self._forget_someone(block):
                self.adopt(block, holder)
            else:
                self._adopt_double(Lease(block, holder))

    def _forget_someone(self, block: Block) -> bool:
        """The ledger shows who it really was. False if there is no such lease."""
        unknown = [held for held in self._leases.of(UNKNOWN_HOLDER) if held.overlaps(block)]
        for held in unknown:
            self.release(held, UNKNOWN_HOLDER)
        return bool(unknown)

    def _adopt_double(self, lease: Lease) -> None:
        for gap in self._claimed(lease.block).gaps(lease.block):
            self._cover(gap)
        self._doubles.append(lease)
        self._leases.note(*lease)

    def release(self, block: Block, holder: str | None = None) -> bool:
        """False, and nothing changed, if that block is not leased (to this holder)."""
        current = self._leases.holder_at(block)
        if current is None or (holder is not None and holder != current and current != UNKNOWN_HOLDER):
            return self._release_double(block, holder)
        self._leases.remove(block, current)
        odd = self._odd[block.family]
        if odd and block.first in odd:
            odd.remove(block.first)
        elif not self._doubles:
            self.grounds[block.family].give(block.first, block.length)
            return True
        self._uncover_all(block)
        return True

    def _release_double(self, block: Block, holder: str | None) -> bool:
        for lease in self._doubles:
            if lease.block == block and holder in (None, lease.holder):
                self._doubles.remove(lease)
                self._leases.forget(*lease)
                self._uncover_all(block)
                return True
        return False

    def _uncover_all(self, block: Block) -> None:
        """A lease is gone: free what no other claims; a double that has no rival left is one no more."""
        for gap in self._claimed(block).gaps(block):
            self._uncover(gap)
        for lease in [lease for lease in self._doubles if lease.block.overlaps(block)]:
            if next(self._leases.overlapping(lease.block), None) is None:
                self._doubles.remove(lease)
                self._leases.forget(*lease)
                self._leases.add(*lease)
                self._odd[block.family].add(lease.block.first)

    def overlapping(self, block: Block) -> Lease | None:
        """A lease that overlaps the block."""
        found = self._leases.holding(block)
        if found is not None:
            return found
        start = self._odd[block.family].at_or_after(block.first)
        if start is None or start > block.last:
            ground = self.grounds.get(block.family)
            start = None if ground is None else ground.first_taken(block)
        found = None if start is None else self._leases.starting_at(block.family, start)
        return found or next((lease for lease in self._doubles if lease.block.overlaps(block)), None)

    def _claimed(self, block: Block) -> RangeSet:
        """What leases claim of the block."""
        doubles = (lease for lease in self._doubles if lease.block.overlaps(block))
        return RangeSet(lease.block.range for lease in chain(self._leases.overlapping(block), doubles))

    def _cover(self, run: Range) -> None:
        """Addresses no lease had before have one now."""
        self._count(run, 1)
        if run.family in self.grounds:
            self.grounds[run.family].take_all(run)

    def _uncover(self, run: Range) -> None:
        """Addresses of a lease have none now."""
        self._count(run, -1)
        if run.family in self.grounds:
            self.grounds[run.family].give_all(run)

    def _count(self, run: Range, times: int) -> None:
        self._outside += times * (run.size - self._total.count_within(run))
        self._reserved_used += times * self._reserved.count_within(run)

    def usage(self) -> Usage:
        free = sum(ground.free for ground in self.grounds.values())
        reserved = self._reserved.count - self._reserved_used
        total = self._total.count
        return Usage(total, total - free - reserved, free, reserved, self._outside)
