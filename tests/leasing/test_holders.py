"""Holders: a story of joining and leaving, and what no order of events may do to an entry's time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.leasing.holders import (
    DAY_MS,
    Entry,
    Identity,
    joined,
    marked,
    preferred,
    released,
    replacement_refusal,
    reserved,
    unmarked,
)
from berth.leasing.model import Reason

NOW = 1_000 * DAY_MS
WEB = Identity("web", "ns", "cluster")
DB = Identity("db", "ns", "cluster")
TIMES = st.integers(NOW - 10 * DAY_MS, NOW + 40 * DAY_MS)
DAYS = st.integers(0, 30)
BY = st.sampled_from(["cluster", "ror", "cli"])


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any entry that the rules below can make: active, pending, released, or marked once."""
    entry = Entry(WEB, draw(DAYS), draw(st.booleans()), uid=draw(st.sampled_from(["", "u1"])))
    match draw(st.integers(0, 3)):
        case 0:
            return entry
        case 1:
            return reserved(None, entry, draw(TIMES))
        case 2:
            return released(entry, entry, draw(TIMES))
        case _:
            return marked(entry, draw(BY), draw(TIMES))


def test_a_holder_joins_leaves_and_is_recalled() -> None:
    wish = Entry(WEB, retention_days=2, uid="u1")
    held = joined(None, wish)
    assert held.active
    left = released(held, wish, NOW)
    assert (left.expires_at, left.marked_by) == (NOW + 2 * DAY_MS, "service")
    assert left.lives(NOW + 2 * DAY_MS - 1)
    assert not left.lives(NOW + 2 * DAY_MS)
    again = joined(left, replace(wish, uid=""))
    assert (again.active, again.marked_by, again.expires_before, again.uid) == (True, "", None, "u1")


def test_without_retention_a_release_ends_at_once() -> None:
    assert not released(Entry(WEB), Entry(WEB), NOW).lives(NOW)


def test_a_reservation_lapses_unless_it_is_confirmed() -> None:
    pending = reserved(None, Entry(WEB), NOW + 120_000)
    assert (pending.pending, pending.expires_at) == (True, NOW + 120_000)
    assert joined(pending, Entry(WEB)) == Entry(WEB)


def test_the_holder_who_leaves_last_says_how_long_it_is_kept() -> None:
    """The request's own retention counts, not the one it had joined with."""
    left = released(Entry(WEB, retention_days=30, uid="u1"), Entry(WEB, retention_days=1), NOW)
    assert (left.expires_at, left.uid) == (NOW + DAY_MS, "u1")


def test_an_undo_puts_back_what_was_before_the_first_of_two_releases() -> None:
    held = Entry(WEB, retention_days=3)
    by_cluster = marked(held, "cluster", NOW + 5 * DAY_MS)
    by_itself = released(by_cluster, held, NOW)
    assert by_itself.expires_at == NOW + 3 * DAY_MS
    assert unmarked(by_itself).active


@given(entries(), DAYS, TIMES)
def test_a_release_never_keeps_an_entry_longer(old: Entry, days: int, now: int) -> None:
    left = released(old, Entry(WEB, days), now)
    assert left.expires_at is not None
    assert left.expires_at <= now + days * DAY_MS
    assert old.expires_at is None or left.expires_at <= old.expires_at
    assert released(left, Entry(WEB, days), now) == left, "repeating it changes nothing"


@given(entries(), BY, TIMES)
def test_a_mark_never_keeps_an_entry_longer_and_taking_it_back_undoes_it(
    old: Entry, by: str, due: int
) -> None:
    after = marked(old, by, due)
    assert after.expires_at is not None
    assert after.expires_at <= due
    assert old.expires_at is None or after.expires_at <= old.expires_at
    assert marked(after, by, due) == after, "repeating it changes nothing"
    if not old.marked_by:
        assert unmarked(after) == (old if after.marked_by else after)


@given(st.none() | entries(), TIMES)
def test_a_reservation_never_shortens_what_is_there(old: Entry | None, until: int) -> None:
    after = reserved(old, Entry(WEB), until)
    if old is not None and old.active:
        assert after == old
    else:
        assert after.expires_at == max(until, old.expires_at or until if old else until)


@given(entries(), entries())
def test_joining_always_ends_active_whatever_was(old: Entry, wish: Entry) -> None:
    after = joined(old, wish)
    assert (after.active, after.pending, after.marked_by) == (True, False, "")
    assert after.uid == (wish.uid or old.uid)


def test_an_undo_of_two_releases_puts_back_what_the_holder_had() -> None:
    """ROR gives it a day, then an administrator less."""
    active = Entry(WEB)
    later = marked(active, "ror", NOW + DAY_MS)
    assert unmarked(marked(later, "cluster", NOW)) == active
    left = released(active, Entry(WEB, retention_days=7), NOW)
    assert unmarked(marked(left, "cluster", NOW)).expires_at == left.expires_at


def test_of_several_addresses_the_active_one_is_kept_then_the_one_kept_longest() -> None:
    soon, late, held = (Entry(WEB, expires_at=time) for time in (NOW + 1, NOW + 2, None))
    assert preferred([(soon, "10.0.0.1"), (late, "10.0.0.2"), (held, "10.0.0.3")]) == "10.0.0.3"
    assert preferred([(soon, "10.0.0.1"), (late, "10.0.0.2")]) == "10.0.0.2"
    assert preferred([(held, "10.0.0.2"), (held, "10.0.0.1")]) == "10.0.0.1"
    assert preferred([]) is None


@pytest.mark.parametrize(
    ("there", "refusal"),
    [
        ([Entry(WEB)], None),
        ([Entry(WEB, expires_at=NOW + 1)], None),
        ([Entry(WEB), Entry(DB, expires_at=NOW)], None),
        ([Entry(WEB), Entry(DB, expires_at=NOW + 1)], Reason.SEVERAL_HOLDERS),
        ([Entry(DB)], Reason.OTHER_HOLDER),
        ([Entry(DB, expires_at=NOW)], None),
        ([], None),
    ],
)
def test_a_secret_is_replaced_by_the_single_living_holder(there: list[Entry], refusal: Reason | None) -> None:
    assert replacement_refusal(there, WEB, NOW) is refusal


@given(st.lists(st.text(), min_size=3, max_size=3), st.lists(st.text(), min_size=3, max_size=3))
def test_two_holders_never_share_a_key(one: list[str], other: list[str]) -> None:
    assert (Identity(*one).key == Identity(*other).key) == (one == other)


def test_parts_of_a_name_do_not_run_into_each_other() -> None:
    assert Identity("a", "bc", "d").key != Identity("ab", "c", "d").key
