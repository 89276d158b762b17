"""Range sets beside plain sets of addresses."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import budget
from tests.support.naive import all_spots, spots

from berth.net import Family, Range, RangeSet, parse_range

RANGES = st.builds(
    lambda family, first, size: Range(family, first, first + size),
    st.sampled_from(list(Family)),
    st.integers(0, 60),
    st.integers(0, 12),
)
SETS = st.lists(RANGES, max_size=6)


@budget(200)
@given(SETS, SETS, RANGES)
def test_range_sets_agree_with_sets_of_addresses(one: list[Range], two: list[Range], item: Range) -> None:
    a, b = RangeSet(one), RangeSet(two)
    plain_a, plain_b = all_spots(one), all_spots(two)
    assert all_spots(a) == plain_a
    assert a.count == len(plain_a)
    assert all_spots(a.union(b)) == plain_a | plain_b
    assert all_spots(a.minus(b)) == plain_a - plain_b
    assert a.contains(item) == (spots(item) <= plain_a)
    assert all_spots(a.within(item)) == plain_a & spots(item)
    assert all_spots(a.gaps(item)) == spots(item) - plain_a
    assert a.count_within(item) == len(plain_a & spots(item))
    assert all_spots(a.blocks()) == plain_a
    assert bool(a) == bool(plain_a)
    assert (a == b) == (plain_a == plain_b)


@budget(100)
@given(SETS)
def test_ranges_are_sorted_and_never_touch(ranges: list[Range]) -> None:
    merged = list(RangeSet(ranges))
    for one, two in itertools.pairwise(merged):
        assert one.family < two.family or one.last + 1 < two.first


def test_equal_sets_are_equal_however_they_were_written() -> None:
    halves = RangeSet(map(parse_range, ("10.0.0.128/25", "10.0.0.0/25")))
    whole = RangeSet([parse_range("10.0.0.0/24")])
    assert halves == whole
    assert hash(halves) == hash(whole)
    assert repr(halves) == "RangeSet(10.0.0.0-10.0.0.255)"


def test_counts_have_no_limit() -> None:
    everything = RangeSet(Range(family, 0, family.top) for family in (Family.V6, Family.V4))
    assert everything.count == 2**128 + 2**32
    assert everything.minus(RangeSet([parse_range("::1")])).count == 2**128 - 1 + 2**32


@pytest.mark.parametrize(("first", "last"), [(5, 4), (-1, 4), (0, 1 << 32)])
def test_a_range_that_is_none_cannot_be_made(first: int, last: int) -> None:
    with pytest.raises(ValueError, match="no range"):
        Range(Family.V4, first, last)
