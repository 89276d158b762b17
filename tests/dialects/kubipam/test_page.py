"""The page of the ledger: edits, and that whoever repeats a step changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.deep import budget

from berth.dialects.kubipam.allocations import Draft, Page, read_cursors, read_page
from berth.dialects.kubipam.orphans import compare
from berth.errors import InvalidText
from berth.leasing import Claim, Grant, Pool, Space, Strategy, decide
from berth.net import Block, Family, RangeSet, parse_block, parse_range


def page_of(*ranges: str, **rest: object) -> Page:
    return Page(RangeSet(map(parse_range, ranges)), **rest)  # type: ignore[arg-type]


def test_a_page_reads_as_it_was_written() -> None:
    page = page_of(
        "10.0.0.0/30",
        "10.0.0.9",
        pending={"u1": parse_block("10.0.0.9/32")},
        released=frozenset({"u2"}),
        cursors={32: 10 << 24, 24: 5},
    )
    written = page.rendered(Family.V4)
    assert written["taken"] == ["10.0.0.0-10.0.0.3", "10.0.0.9"]
    assert written["roundRobin"] == ["0.0.0.5/24", "10.0.0.0/32"]
    assert read_page(written) == page


def test_a_range_without_a_page_has_none() -> None:
    assert read_page({"state": "Ready"}) is None
    assert read_page({"taken": []}) == Page()


@pytest.mark.parametrize("status", [{"taken": ["nonsense"]}, {"taken": [], "pending": ["uid"]}])
def test_a_page_that_cannot_be_read_is_not_taken_for_an_empty_one(status: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidText, match="cannot be read"):
        read_page(status)


def test_cursors_that_cannot_be_read_are_left_out() -> None:
    """K-072: an unparsable entry is skipped."""
    assert read_cursors({"roundRobin": ["10.0.0.4/32", "x/24", "10.0.0.0", "10.0.0.0/x"]}) == {
        32: (10 << 24) + 4
    }


def test_what_is_taken_is_granted_to_nobody_else() -> None:
    draft = Draft(page_of("10.0.0.4/30"))
    assert not draft.grant("u", parse_block("10.0.0.0/29"))
    assert not draft.grant("u", parse_block("10.0.0.5/32"))
    assert draft.grant("u", parse_block("10.0.0.8/30"))
    assert draft.page().taken == RangeSet([parse_range("10.0.0.4-10.0.0.11")])


def test_a_grant_repeated_is_the_same_grant() -> None:
    block = parse_block("10.0.0.0/32")
    once = Draft(Page())
    assert once.grant("u", block)
    twice = Draft(once.page())
    assert twice.grant("u", block)
    assert twice.page() == once.page()
    assert not twice.grant("u", parse_block("10.0.0.1/32"))


def test_a_release_repeated_frees_nothing_of_the_next_holder() -> None:
    """Contract 6.8: the second release came when the block was another's."""
    block = parse_block("10.0.0.0/32")
    page = page_of("10.0.0.0")
    first = Draft(page)
    first.release("old", [block])
    assert not first.page().taken
    second = Draft(first.page())
    assert second.grant("new", block)
    third = Draft(second.page())
    third.release("old", [block])
    assert third.page().holds(block)


def test_a_request_that_was_pending_gives_back_what_was_pending() -> None:
    draft = Draft(page_of("10.0.0.0/31", pending={"u": parse_block("10.0.0.1/32")}))
    draft.release("u", [])
    page = draft.page()
    assert list(page.taken) == [parse_range("10.0.0.0")]
    assert not page.pending
    assert page.released == {"u"}


def test_what_is_pending_for_one_who_went_goes_back_once() -> None:
    block = parse_block("10.0.0.1/32")
    draft = Draft(page_of("10.0.0.0/31", pending={"u": block}))
    assert draft.abandon("u") == block
    assert draft.abandon("u") is None
    assert list(draft.page().taken) == [parse_range("10.0.0.0")]


def test_what_two_hold_stays_until_the_last_of_them_goes() -> None:
    """Upstream could grant one block twice; after adoption neither loses it to a third."""
    draft = Draft(page_of("10.0.0.0/30"))
    draft.release("one", [parse_block("10.0.0.0/30")], shared=[parse_block("10.0.0.2/32")])
    assert list(draft.page().taken) == [parse_range("10.0.0.2")]


def test_a_second_grant_to_one_who_has_a_block_goes_back() -> None:
    first, second = parse_block("10.0.0.0/32"), parse_block("10.0.0.1/32")
    draft = Draft(page_of("10.0.0.0/31", pending={"u": second}))
    assert draft.settle("u", first) == second
    assert list(draft.page().taken) == [parse_range("10.0.0.0")]


def test_a_cursor_past_the_last_address_is_dropped() -> None:
    draft = Draft(Page(cursors={32: 7}))
    assert draft.grant("u", parse_block("255.255.255.255/32"), moves_cursor=True)
    assert draft.page().cursors == {}


def test_two_grants_of_one_write_cannot_overlap() -> None:
    draft = Draft(Page())
    draft.adopt(RangeSet([parse_range("10.0.0.8")]))
    assert draft.grant("one", parse_block("10.0.0.0/31"))
    for cidr in ("10.0.0.1/32", "10.0.0.0/30", "10.0.0.8/32"):
        assert not draft.grant("two", parse_block(cidr))
    assert draft.grant("two", parse_block("10.0.0.2/32"))
    assert draft.page().taken == RangeSet(map(parse_range, ("10.0.0.0-10.0.0.2", "10.0.0.8")))


def request(uid: str, cidr: str = "") -> dict[str, object]:
    meta = {"namespace": "n", "name": uid, "uid": uid}
    return {"metadata": meta, "spec": {"ipam": {"name": "p"}}, "status": {"cidr": cidr} if cidr else {}}


def test_the_audit_tells_whose_is_what() -> None:
    page = page_of(
        "10.0.0.0/29",
        pending={"waits": parse_block("10.0.0.1/32"), "left": parse_block("10.0.0.2/32")},
        released=frozenset({"going", "gone"}),
    )
    there = [
        request("holds", "10.0.0.0/32"),
        request("waits"),
        request("going", "10.0.0.7/32"),
        request("new", "10.0.1.0/32"),
    ]
    found = compare(page, "n/p", there)
    assert list(found.nobodys) == [parse_range("10.0.0.2-10.0.0.7")]
    assert list(found.missing) == [parse_range("10.0.1.0")]
    assert found.stale == {"left", "gone"}


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(24, 32)), max_size=30))
def test_grants_are_refused_exactly_if_they_overlap(wishes: list[tuple[int, int]]) -> None:
    page = Page()
    held: list[Block] = []
    for number, (last, length) in enumerate(wishes):
        block = parse_block(f"10.0.0.{last}/{length}")
        draft = Draft(page)
        assert draft.grant(str(number), block) == (not any(block.overlaps(other) for other in held))
        if page.touches(block):
            continue
        held.append(block)
        page = draft.page()
    assert page.taken == RangeSet(block.range for block in held)


class RangeLedger(RuleBasedStateMachine):
    """Any sequence of grants and releases of mixed lengths, decided in memory and written on the page."""

    strategy = Strategy.BEST_FIT

    def __init__(self) -> None:
        super().__init__()
        pool = Pool("p", (parse_range("10.0.0.0/24"), parse_range("10.0.1.64-10.0.1.201")))
        self.pool = Pool(pool.name, pool.ranges, strategy=self.strategy)
        self.space = Space(self.pool)
        self.page = Page()
        self.held: dict[str, Block] = {}
        self.count = 0

    @rule(length=st.integers(24, 32))
    def grant(self, length: int) -> None:
        self.count += 1
        decision = decide(Claim(f"u{self.count}", length=length), (self.space,))
        if isinstance(decision, Grant):
            decision.take()
            draft = Draft(self.page)
            assert draft.grant(decision.holder, decision.block, moves_cursor=self.space.goes_round)
            draft.settle(decision.holder, decision.block)
            self.page = draft.page()
            self.held[decision.holder] = decision.block

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.held)))
        block = self.held.pop(uid)
        draft = Draft(self.page)
        draft.release(uid, [block])
        draft.released.discard(uid)
        self.page = draft.page()
        assert self.space.release(block, uid)

    @invariant()
    def nothing_overlaps_and_nothing_is_lost(self) -> None:
        assert self.page.taken == RangeSet(block.range for block in self.held.values())
        assert self.page.taken.count == sum(block.size for block in self.held.values())
        assert self.space.usage().used == self.page.taken.count
        assert dict(self.page.cursors) == self.space.cursors

    def teardown(self) -> None:
        """After all are released the range is whole again."""
        for uid, block in self.held.items():
            self.space.release(block, uid)
        assert isinstance(decide(Claim("all", length=24), (self.space,)), Grant)
        assert self.space.usage().free == self.space.usage().total


class RoundRobinLedger(RangeLedger):
    strategy = Strategy.ROUND_ROBIN


TestLedger = RangeLedger.TestCase
TestLedger.settings = budget(30, 40)
TestRoundRobinLedger = RoundRobinLedger.TestCase
TestRoundRobinLedger.settings = budget(30, 40)
