"""The whole engine beside a naive model made of sets: all strategies, both families, mixed too."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.deep import budget
from tests.support.naive import Naive, Rigged, spots

from berth.errors import Taken
from berth.leasing import (
    UNKNOWN_HOLDER,
    Claim,
    Decision,
    Grant,
    Keep,
    Lease,
    Pool,
    Reason,
    Refusal,
    Space,
    Strategy,
    decide,
)
from berth.net import Block, Family, Range, block_at

REACH = 160  # all happens among so many addresses of each family
NAMES = ("web", "db")
FAMILIES = st.sampled_from(list(Family))
ORDERS = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 6, 7])
STARTS = st.integers(0, REACH - 1)
NUMBERS = st.integers(0, 2**16)


class Bases:
    """Where the addresses lie: at the very start, in the middle or at the very end of their family."""

    CHOICES: ClassVar = {family: (0, 5 << (family.width - 8), family.top + 1 - REACH) for family in Family}

    def __init__(self, choice: int) -> None:
        self.at = {family: bases[choice] for family, bases in self.CHOICES.items()}

    def block(self, family: Family, start: int, order: int) -> Block:
        return block_at(family, self.at[family] + start, family.width - order)

    def range(self, family: Family, start: int, size: int) -> Range:
        first = self.at[family] + start
        return Range(family, first, min(first + size - 1, self.at[family] + REACH - 1))


@st.composite
def pools(draw: st.DrawFn, bases: Bases, strategy: Strategy) -> Pool:
    families = draw(
        st.sampled_from([FAMILIES, FAMILIES.filter(lambda f: f == 4), FAMILIES.filter(lambda f: f == 6)])
    )
    sizes = st.sampled_from([1, 2, 5, 8, 16, 30, 64, 100])
    ranges = st.lists(st.builds(bases.range, families, STARTS, sizes), min_size=1, max_size=4)
    exclusions = st.lists(st.builds(bases.range, families, STARTS, st.sampled_from([1, 3, 16])), max_size=2)
    blocks = st.builds(bases.block, families, STARTS, st.sampled_from([0, 0, 2]))
    reservations = st.dictionaries(st.sampled_from(NAMES), blocks, max_size=2)
    return Pool("p", tuple(draw(ranges)), tuple(draw(exclusions)), draw(reservations), strategy)


class EngineMachine(RuleBasedStateMachine):
    strategy: Strategy

    @initialize(data=st.data(), choice=st.integers(0, 2))
    def begin(self, data: st.DataObject, choice: int) -> None:
        self.bases = Bases(choice)
        pool = data.draw(pools(self.bases, self.strategy))
        self.naive = Naive(pool)
        self.space = Space(pool)
        self.number = 0

    def holder(self) -> str:
        self.number += 1
        return f"holder {self.number}"

    def record(self, grant: Grant) -> None:
        grant.take()
        self.naive.leases.append(Lease(grant.block, grant.holder))

    @rule(family=st.none() | FAMILIES, order=ORDERS, number=NUMBERS, times=st.sampled_from([1, 1, 8]))
    def claim(self, family: Family | None, order: int, number: int, times: int) -> None:
        width = 32 if family is None else family.width
        length = None if order == 0 else width - order
        for _ in range(times):
            claim = Claim(self.holder(), family=family, length=length)
            decision, expected = self.decide_and_expect(claim, number)
            if isinstance(decision, Grant):
                self.check_grant(claim, decision.block, expected)
                self.record(decision)
            else:
                assert isinstance(decision, Refusal)
                assert not self.naive.anywhere(claim) if self.by_blocks else expected is None

    def decide_and_expect(self, claim: Claim, number: int) -> tuple[Decision, Block | None]:
        expected, drawn = self.naive.at_random(claim, number)
        if self.strategy is not Strategy.RANDOM:
            expected = self.naive.first(claim)
        decisions = [decide(claim, (self.space,), Rigged(drawn)) for _ in range(2)]
        assert decisions[0] == decisions[1], "same input, same decision"
        return decisions[0], expected

    def check_grant(self, claim: Claim, block: Block, expected: Block | None) -> None:
        assert spots(block) <= self.naive.free, "in the pool, and of no lease"
        assert block.first % block.size == 0
        assert claim.family in (None, block.family)
        assert block.length == (block.family.width if claim.length is None else claim.length)
        if not self.by_blocks:
            assert block == expected

    @property
    def by_blocks(self) -> bool:
        return self.strategy in (Strategy.BEST_FIT, Strategy.ROUND_ROBIN)

    @rule(family=FAMILIES, start=STARTS, order=ORDERS)
    def pin(self, family: Family, start: int, order: int) -> None:
        block = self.bases.block(family, start, order)
        decision = decide(Claim(self.holder(), pin=block), (self.space,))
        if spots(block) <= self.naive.free:
            assert isinstance(decision, Grant)
            assert decision.block == block
            self.record(decision)
        else:
            assert isinstance(decision, Refusal)
            inside = spots(block) <= self.naive.total
            assert decision.reason is (Reason.PIN_TAKEN if inside else Reason.PIN_OUTSIDE)

    @rule(name=st.sampled_from(NAMES))
    def claim_reserved(self, name: str) -> None:
        block = self.naive.pool.reservations.get(name)
        if block is None:
            return
        decision = decide(Claim(self.holder(), name=name), (self.space,))
        if not spots(block) <= self.naive.total:
            assert isinstance(decision, Refusal)
            assert decision.reason is Reason.RESERVATION_OUTSIDE
        elif self.naive.overlapping(block):
            assert isinstance(decision, Refusal)
            assert decision.reason is Reason.RESERVATION_TAKEN
        else:
            assert isinstance(decision, Grant)
            assert decision.block == block
            self.record(decision)

    @rule(family=FAMILIES, start=STARTS, order=ORDERS)
    def take(self, family: Family, start: int, order: int) -> None:
        """Anything no lease overlaps can be taken, in the pool or not."""
        lease = Lease(self.bases.block(family, start, order), self.holder())
        if self.someone_in(lease.block):
            return
        if self.naive.overlapping(lease.block):
            with pytest.raises(Taken):
                self.space.take(*lease)
        else:
            self.space.take(*lease)
            self.space.take(*lease)
            self.naive.leases.append(lease)

    @rule(family=FAMILIES, start=STARTS, order=ORDERS)
    def adopt(self, family: Family, start: int, order: int) -> None:
        lease = Lease(self.bases.block(family, start, order), self.holder())
        self.space.adopt(*lease)
        self.space.adopt(*lease)
        for unknown in self.someone_in(lease.block):
            self.naive.leases.remove(unknown)  # now it is known who that was
        self.naive.leases.append(lease)

    @rule(family=FAMILIES, start=STARTS, order=ORDERS)
    def adopt_of_someone(self, family: Family, start: int, order: int) -> None:
        lease = Lease(self.bases.block(family, start, order), UNKNOWN_HOLDER)
        if not self.someone_in(lease.block):
            self.space.adopt(*lease)
            self.space.adopt(*lease)
            self.naive.leases.append(lease)

    def someone_in(self, block: Block) -> list[Lease]:
        return [lease for lease in self.naive.overlapping(block) if lease.holder == UNKNOWN_HOLDER]

    @precondition(lambda self: self.naive.leases)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.naive.leases))
        if lease.holder == UNKNOWN_HOLDER:
            return  # it may have several blocks of a length, and which of them is kept is not said
        claim = Claim(lease.holder, family=lease.block.family, length=lease.block.length)
        assert decide(claim, (self.space,)) == Keep(self.space, lease.block)

    @precondition(lambda self: self.naive.leases)
    @rule(data=st.data(), times=st.sampled_from([1, 1, 6]))
    def release(self, data: st.DataObject, times: int) -> None:
        for _ in range(min(times, len(self.naive.leases))):
            index = data.draw(st.integers(0, len(self.naive.leases) - 1))
            lease = self.naive.leases.pop(index)
            could_be_anyone = any(other.block == lease.block for other in self.someone_in(lease.block))
            if lease.holder != UNKNOWN_HOLDER and not could_be_anyone:
                assert not self.space.release(lease.block, "a stranger")
            assert self.space.release(*lease)
            if not could_be_anyone:
                assert not self.space.release(*lease)

    @rule(family=FAMILIES, start=STARTS, order=ORDERS)
    def release_what_is_not_leased(self, family: Family, start: int, order: int) -> None:
        block = self.bases.block(family, start, order)
        if all(lease.block != block for lease in self.naive.leases):
            assert not self.space.release(block)

    @rule(data=st.data(), in_place=st.booleans(), strategy=st.sampled_from(list(Strategy)))
    def edit_pool(self, data: st.DataObject, in_place: bool, strategy: Strategy) -> None:
        unknown = [lease for lease in self.naive.leases if lease.holder == UNKNOWN_HOLDER]
        if any(len(self.naive.overlapping(lease.block)) > 1 for lease in unknown):
            return  # all leases are adopted again: those who are known may show who someone was
        self.strategy = strategy
        pool = data.draw(pools(self.bases, strategy))
        if in_place:
            self.space.edit(pool)
        else:
            self.space = Space(pool, self.space.leases())
        self.naive = Naive(pool, self.naive.leases)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "naive"):
            return
        naive, usage = self.naive, self.space.usage()
        covered = naive.covered
        assert usage.total == len(naive.total)
        assert usage.used == len(naive.total & covered)
        assert usage.free == len(naive.free)
        assert usage.reserved == len(naive.reserved - covered)
        assert usage.outside == len(covered - naive.total)
        assert sorted(self.space.leases()) == sorted(naive.leases)

    @rule(family=FAMILIES, start=STARTS, order=ORDERS)
    def look(self, family: Family, start: int, order: int) -> None:
        block = self.bases.block(family, start, order)
        holder = self.space.holder_of(block)
        holders = {lease.holder for lease in self.naive.overlapping(block)}
        assert holder in holders if holders else holder is None
        assert self.space.is_free(block) == (spots(block) <= self.naive.free)
        assert self.space.contains(block) == (spots(block) <= self.naive.total)

    def teardown(self) -> None:
        """Released of everything, the pool is whole again."""
        if hasattr(self, "naive"):
            for lease in self.naive.leases:
                assert self.space.release(*lease)
            self.space.cursors.clear()  # the only other thing a space remembers
            fresh = Space(self.naive.pool)
            assert self.space.usage() == fresh.usage()
            for family in Family:
                claim = Claim("the last", family=family, length=family.width - 3)
                assert outcome(decide(claim, (self.space,), Rigged(0))) == outcome(
                    decide(claim, (fresh,), Rigged(0))
                )


def outcome(decision: Decision) -> Block | Reason:
    return decision.reason if isinstance(decision, Refusal) else decision.block


class FirstMachine(EngineMachine):
    strategy = Strategy.FIRST


class RandomMachine(EngineMachine):
    strategy = Strategy.RANDOM


class BestFitMachine(EngineMachine):
    strategy = Strategy.BEST_FIT


class RoundRobinMachine(EngineMachine):
    strategy = Strategy.ROUND_ROBIN


TestFirst = FirstMachine.TestCase
TestFirst.settings = budget(50, steps=25)
TestRandom = RandomMachine.TestCase
TestRandom.settings = budget(50, steps=25)
TestBestFit = BestFitMachine.TestCase
TestBestFit.settings = budget(50, steps=25)
TestRoundRobin = RoundRobinMachine.TestCase
TestRoundRobin.settings = budget(50, steps=25)
