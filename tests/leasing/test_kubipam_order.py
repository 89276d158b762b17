"""Best fit and round robin give the very blocks kubipam gives."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.deep import budget
from tests.support.walk import Walk

from berth.leasing import Claim, Grant, Pool, Space, Strategy, decide
from berth.leasing.buddy import Buddy
from berth.net import Block, Family, Range, RangeSet, block_at, parse_range

NUMBERS = count(1)


def space(*ranges: str, strategy: Strategy = Strategy.BEST_FIT) -> Space:
    return Space(Pool("p", tuple(map(parse_range, ranges)), strategy=strategy))


def grant(space: Space, length: int) -> Block | None:
    decision = decide(Claim(f"holder {next(NUMBERS)}", length=length), (space,))
    if not isinstance(decision, Grant):
        return None
    decision.take()
    return decision.block


def grants(space: Space, lengths: list[int]) -> list[str]:
    return [str(grant(space, length) or "none") for length in lengths]


@pytest.mark.parametrize(
    ("ranges", "lengths", "expected"),
    [
        (
            ["192.168.0.0/16"],
            [24, 24, 32, 24, 32, 16, 17],
            "192.168.0.0/24 192.168.1.0/24 192.168.2.0/32 192.168.3.0/24 192.168.2.1/32 none "
            "192.168.128.0/17",
        ),
        (["10.0.0.0/24"], [32, 25], "10.0.0.0/32 10.0.0.128/25"),
        (
            ["10.0.0.0/24"],
            [32, 30, 26, 32, 25, 27, 28, 29],
            "10.0.0.0/32 10.0.0.4/30 10.0.0.64/26 10.0.0.1/32 10.0.0.128/25 10.0.0.32/27 10.0.0.16/28 "
            "10.0.0.8/29",
        ),
        (["10.0.0.0/26"], [28, 30, 28], "10.0.0.0/28 10.0.0.16/30 10.0.0.32/28"),
        (["10.0.0.0/8"], [9, 10, 12, 11], "10.0.0.0/9 10.128.0.0/10 10.192.0.0/12 10.224.0.0/11"),
        (["10.0.0.0/25", "10.0.0.128/28", "10.0.0.160/28"], [30], "10.0.0.128/30"),
        (
            ["10.0.0.10-10.0.0.20"],
            [32] * 12,
            "10.0.0.20/32 10.0.0.10/32 10.0.0.11/32 10.0.0.12/32 10.0.0.13/32 10.0.0.14/32 10.0.0.15/32 "
            "10.0.0.16/32 10.0.0.17/32 10.0.0.18/32 10.0.0.19/32 none",
        ),
        (
            ["172.16.0.0/22", "172.16.8.0/24"],
            [24, 24, 23, 24, 25],
            "172.16.8.0/24 172.16.0.0/24 172.16.2.0/23 172.16.1.0/24 none",
        ),
        (
            ["fd00:1::/48"],
            [64, 64, 128, 56],
            "fd00:1::/64 fd00:1:0:1::/64 fd00:1:0:2::/128 fd00:1:0:100::/56",
        ),
        (
            ["2001:db8::/120"],
            [128, 126, 121, 122],
            "2001:db8::/128 2001:db8::4/126 2001:db8::80/121 2001:db8::40/122",
        ),
        (["10.0.0.10-10.0.0.20"], [30, 30, 30], "10.0.0.12/30 10.0.0.16/30 none"),
        (["10.0.0.0/29"], [32] * 9, " ".join(f"10.0.0.{i}/32" for i in range(8)) + " none"),
        ([], [32], "none"),
    ],
)
def test_best_fit_gives_the_blocks_of_the_contracts_table(
    ranges: list[str], lengths: list[int], expected: str
) -> None:
    assert grants(space(*ranges), lengths) == expected.split()


@pytest.mark.parametrize(
    ("ranges", "length", "expected"),
    [
        (["10.0.0.0/25"], 27, ".0 .32 .64 .96 .0"),
        (["10.0.0.0/28"], 29, ".0 .8 .0"),
        (["10.0.0.0/8"], 9, "10.0.0.0 10.128.0.0 10.0.0.0"),
    ],
)
def test_round_robin_goes_round_though_each_block_is_released_at_once(
    ranges: list[str], length: int, expected: str
) -> None:
    pool = space(*ranges, strategy=Strategy.ROUND_ROBIN)
    for address in expected.split():
        block = grant(pool, length)
        assert block is not None
        assert block.address == (address if address.startswith("10") else f"10.0.0{address}")
        assert pool.release(block)


@pytest.mark.parametrize(
    ("ranges", "lengths", "expected"),
    [
        (
            ["172.16.0.0/22", "172.16.8.0/24"],
            [24] * 6,
            "172.16.8.0/24 172.16.0.0/24 172.16.1.0/24 172.16.2.0/24 172.16.3.0/24 none",
        ),
        (
            ["10.0.0.0/30", "10.0.1.0/30"],
            [32] * 8,
            " ".join(f"10.0.{net}.{host}/32" for net in (0, 1) for host in range(4)),
        ),
        (
            ["255.255.255.252/30"],
            [32] * 5,
            " ".join(f"255.255.255.{i}/32" for i in range(252, 256)) + " none",
        ),
    ],
)
def test_round_robin_without_release_reaches_every_block(
    ranges: list[str], lengths: list[int], expected: str
) -> None:
    assert grants(space(*ranges, strategy=Strategy.ROUND_ROBIN), lengths) == expected.split()


def test_round_robin_keeps_a_cursor_per_length_that_only_its_own_grants_move() -> None:
    pool = space("192.168.0.0/16", strategy=Strategy.ROUND_ROBIN)
    assert grants(pool, [24, 24]) == ["192.168.0.0/24", "192.168.1.0/24"]
    assert pool.cursors == {24: 0xC0A80200}
    assert pool.release(block_at(Family.V4, 0xC0A80000, 24))
    assert grants(pool, [24, 32, 32]) == ["192.168.2.0/24", "192.168.0.0/32", "192.168.0.1/32"]

    pin = block_at(Family.V4, 0xC0A8FF00, 24)
    pinned = decide(Claim("pinned", pin=pin), (pool,))
    assert isinstance(pinned, Grant)
    pinned.take()
    assert pool.cursors == {24: 0xC0A80300, 32: 0xC0A80002}


def test_a_pool_that_was_cut_up_serves_its_whole_size_again_after_release() -> None:
    for text, lengths in (("10.0.0.0/8", [9, 10, 12, 11]), ("fd00:1::/48", [64, 128, 56])):
        pool = space(text)
        grants(pool, lengths)
        for lease in list(pool.leases()):
            assert pool.release(lease.block)
        whole = parse_range(text)
        assert str(grant(pool, whole.family.width - (whole.size - 1).bit_length())) == text


BASES = {Family.V4: 0x0A000000, Family.V6: 0xFD00 << 112}
STARTS = st.integers(0, 1100)
SIZES = st.sampled_from([1, 1, 2, 3, 5, 8, 17, 32, 60, 64, 64, 65, 128, 130, 256, 512])
RANGES = st.lists(st.tuples(STARTS, SIZES), min_size=1, max_size=6)
ORDERS = st.sampled_from([0, 0, 0, 1, 2, 3, 5, 6, 7, 8])


def ranges_of(family: Family, spans: list[tuple[int, int]]) -> list[Range]:
    base = BASES[family]
    return [Range(family, base + start, base + start + size - 1) for start, size in spans]


class KubipamMachine(RuleBasedStateMachine):
    """The engine and the literal walk, side by side."""

    strategy = Strategy.BEST_FIT

    @initialize(family=st.sampled_from(list(Family)), spans=RANGES)
    def begin(self, family: Family, spans: list[tuple[int, int]]) -> None:
        ranges = ranges_of(family, spans)
        self.walk = Walk(family, ranges)
        self.space = Space(Pool("p", tuple(ranges), strategy=self.strategy))
        self.held: list[Block] = []

    @rule(order=ORDERS, times=st.sampled_from([1, 1, 4, 30]))
    def ask(self, order: int, times: int) -> None:
        length = self.walk.width - order
        for _ in range(times):
            expected = self.walk_grants(length)
            assert grant(self.space, length) == expected
            if expected is None:
                break
            self.held.append(expected)

    @rule(start=STARTS, order=ORDERS)
    def pin(self, start: int, order: int) -> None:
        block = block_at(self.walk.family, BASES[self.walk.family] + start, self.walk.width - order)
        decision = decide(Claim(f"holder {next(NUMBERS)}", pin=block), (self.space,))
        assert isinstance(decision, Grant) == self.walk.exact(block)
        if isinstance(decision, Grant):
            decision.take()
            self.held.append(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), times=st.sampled_from([1, 3, 20]))
    def release(self, data: st.DataObject, times: int) -> None:
        for _ in range(min(times, len(self.held))):
            block = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
            self.walk.release(block)
            assert self.space.release(block)
            assert not self.space.release(block)

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "held"):
            assert self.space.usage().used == sum(block.size for block in self.held)

    def teardown(self) -> None:
        for block in getattr(self, "held", []):
            assert self.space.release(block)
        if hasattr(self, "space"):
            ground = next(iter(self.space.grounds.values()))
            assert isinstance(ground, Buddy)
            whole = {(block.first, block.size) for block in RangeSet(self.space.pool.ranges).blocks()}
            assert {(first, 1 << order) for first, order in ground.blocks} == whole

    def walk_grants(self, length: int) -> Block | None:
        return self.walk.grant(length)


class RoundRobinMachine(KubipamMachine):
    strategy = Strategy.ROUND_ROBIN

    def walk_grants(self, length: int) -> Block | None:
        """Both keep a cursor that led nowhere, since a decision changes nothing."""
        return self.walk.grant_next(length)


TestBestFit = KubipamMachine.TestCase
TestBestFit.settings = budget(60)
TestRoundRobin = RoundRobinMachine.TestCase
TestRoundRobin.settings = budget(60)
