"""What the auditor of the stores finds, on pages made by hand: each is wrong in one way."""

from __future__ import annotations

import pytest
from tests.faults.books import Books, Event, Holder, Page, Reader, Row, lapsed

NOW = 1_000_000
POOL, A, B = "inet/4", "83.118.168.10", "83.118.168.11"
SIX, OTHER_SPELLING = "2a05:1234::5", "2a05:1234:0::5"


def held(address: str, service: str = "a", expires_at: int | None = None, pool: str = POOL) -> Holder:
    return Holder(address, pool, f"key of {service}", service, expires_at)


def took(*addresses: str, pool: str = POOL) -> list[Event]:
    return [Event(number, pool, address, 1) for number, address in enumerate(addresses, 1)]


def judged(page: Page, *, shared: bool = False) -> list[str]:
    return Reader(Books("sqlite:///nowhere.db", shared=shared)).judge(page)


def test_a_page_that_is_right() -> None:
    rows = [Row(A, POOL), Row(B, POOL), Row(SIX, "inet/6")]
    holders = [held(A), held(B, "b", NOW + 1), held(SIX, "a", pool="inet/6")]
    assert judged(Page(NOW, rows, holders, [*took(A, B), *took(SIX, pool="inet/6")])) == []


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (
            Page(NOW, [Row(A, POOL), Row(A, POOL)], [held(A)], took(A, A)),
            ["I1: 83.118.168.10 has 2 rows"],
        ),
        (
            Page(
                NOW,
                [Row(SIX, "inet/6"), Row(OTHER_SPELLING, "inet/6")],
                [held(SIX, "a", pool="inet/6"), held(OTHER_SPELLING, "b", pool="inet/6")],
                took(SIX, OTHER_SPELLING, pool="inet/6"),
            ),
            ["I1: 2a05:1234::5 has 2 rows"],
        ),
        (
            Page(NOW, [Row("10.9.9.9", POOL)], [held("10.9.9.9")], took("10.9.9.9")),
            ["I1: 10.9.9.9 is no address of inet/4"],
        ),
        (
            Page(NOW, [Row(A, POOL)], [held(A), held(A, "b", NOW + 1)], took(A)),
            ["I1: 83.118.168.10 has ['a', 'b']"],
        ),
        (
            Page(NOW, [Row(A, POOL), Row(B, POOL)], [held(A), held(B)], took(A, B)),
            ["I1: a is on ['83.118.168.10', '83.118.168.11']"],
        ),
        (Page(NOW, [], [held(A)]), ["I1: a is on 83.118.168.10 of inet/4, which has no row"]),
        (Page(NOW, [Row(A, POOL)], [], took(A)), ["I2: 83.118.168.10 has no holder"]),
        (Page(NOW, [], [], took(A)), ["I2: 83.118.168.10 has 0 rows, by the history 1"]),
        (Page(NOW, [Row(A, POOL)], [held(A)]), ["I2: 83.118.168.10 has 1 rows, by the history 0"]),
    ],
)
def test_a_page_that_is_wrong(page: Page, found: list[str]) -> None:
    assert judged(page) == found


def test_those_who_know_the_secret_may_be_on_one_address() -> None:
    page = Page(NOW, [Row(A, POOL)], [held(A), held(A, "b")], took(A))
    assert judged(page, shared=True) == []


def test_the_history_is_followed_from_look_to_look() -> None:
    reader = Reader(Books("sqlite:///nowhere.db"))
    assert reader.judge(Page(NOW, [Row(A, POOL)], [held(A)], took(A))) == []
    assert reader.judge(Page(NOW, [], [], [Event(2, POOL, A, -1)])) == []
    assert reader.judge(Page(NOW, [Row(A, POOL)], [held(A)], [Event(3, POOL, A, 1)])) == []


def test_what_has_lapsed_waits_for_the_sweep() -> None:
    page = Page(NOW, [Row(A, POOL), Row(B, POOL)], [held(A, "a", NOW), held(B, "b", NOW + 1)])
    assert lapsed(page) == ["I2: 83.118.168.10 has lapsed and is not free"]
