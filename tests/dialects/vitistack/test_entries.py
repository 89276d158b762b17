"""What a pool lists: one by one, merged beyond, and never anything of others'."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.entries import MOST_BYTES, ONE_BY_ONE, Coverage, Entries, lost
from berth.net import Address, Family, RangeSet, parse_range

Object = dict[str, Any]
THEIRS = ("198.51.100.0/28", "192.0.2.9", "2001:db8:9::-2001:db8:9::ff", "no address at all")
FAMILIES = {Family.V4: 0x0A000000, Family.V6: 0x20010DB8 << 96}
ADDRESSES = st.builds(
    lambda family, number: Address(family, FAMILIES[family] + number),
    st.sampled_from(list(FAMILIES)),
    st.integers(0, 200),
)


def v4(*numbers: int) -> list[Address]:
    return [Address(Family.V4, FAMILIES[Family.V4] + number) for number in numbers]


def stored(entries: Entries, **changes: Any) -> Object:
    """As the API server has it."""
    annotations = {kinds.MERGED: entries.annotation} if entries.annotation else {}
    return {"metadata": {"annotations": annotations}, "spec": {"addresses": entries.texts, **changes}}


def test_the_first_stand_one_by_one_and_those_beyond_are_merged() -> None:
    entries = Entries().plus(v4(*range(ONE_BY_ONE + 10)))
    assert entries.texts[:2] == ["10.0.0.0/32", "10.0.0.1/32"]
    assert entries.texts[ONE_BY_ONE:] == ["10.0.0.32-10.0.0.41"]
    assert entries.annotation == "10.0.0.32-10.0.0.41"


def test_a_range_is_grown_and_split_and_a_single_one_is_a_host() -> None:
    entries = Entries().plus(v4(*range(ONE_BY_ONE + 10))).plus(v4(42)).minus(v4(33, 38))
    assert entries.texts[ONE_BY_ONE:] == ["10.0.0.32/32", "10.0.0.34-10.0.0.37", "10.0.0.39-10.0.0.42"]


def test_an_address_that_is_covered_is_not_written_again() -> None:
    theirs = Entries(("10.0.0.0/24",))
    assert theirs.plus(v4(0, 255)) == theirs
    assert theirs.minus(v4(0, 255)) == theirs


def test_an_ipv6_prefix_of_length_32_is_no_single_address() -> None:
    theirs = Entries(("2001:db8::/32",))
    inside = [Address(Family.V6, FAMILIES[Family.V6] + 7)]
    assert theirs.plus(inside) == theirs
    assert theirs.minus(inside) == theirs


def test_a_range_that_somebody_edited_is_no_longer_ours() -> None:
    entries = Entries().plus(v4(*range(ONE_BY_ONE + 10)))
    edited = stored(entries, addresses=[*entries.texts[:ONE_BY_ONE], "10.0.0.32-10.0.0.80"])
    found = Entries.of(edited)
    assert not found.merged
    assert found.minus(v4(35)).texts[-1] == "10.0.0.32-10.0.0.80"


def test_what_is_too_scattered_stands_one_by_one() -> None:
    far = v4(*range(0, 200_000, 2))
    entries = Entries().plus(far[:5000]).plus(far[5000:5001]).plus(far[5001:5002])
    assert len(entries.annotation or "") > MOST_BYTES
    assert [text for text in entries.listed if text not in Entries().plus(far[:ONE_BY_ONE]).listed] == [
        "10.0.39.16/32",
        "10.0.39.18/32",
    ]


@given(st.integers(0, 80), st.lists(st.tuples(st.booleans(), st.sets(ADDRESSES, max_size=30)), max_size=12))
def test_a_pool_covers_what_was_added_and_not_removed_and_keeps_what_others_put_there(
    crowd: int, steps: list[tuple[bool, set[Address]]]
) -> None:
    ours = set(v4(*range(1000, 1000 + crowd)))
    entries = Entries(THEIRS).plus(ours)
    for adds, some in steps:
        entries = entries.plus(some) if adds else entries.minus(some)
        ours = ours | some if adds else ours - some
        entries = Entries.of(stored(entries))  # nothing is known but what is stored
        coverage = Coverage(entries.texts)
        for family, base in FAMILIES.items():
            for address in (Address(family, base + number) for number in range(201)):
                assert (address in coverage) == (address in ours)
        assert tuple(text for text in entries.texts if text in THEIRS) == THEIRS
        assert len(entries.texts) == len(set(entries.texts))
    left = entries.minus(ours)
    assert (tuple(left.texts), left.annotation) == (THEIRS, None)


def test_what_a_pool_covers_no_longer() -> None:
    before = Entries(THEIRS).plus(v4(*range(ONE_BY_ONE + 10)))
    assert not lost(stored(before), stored(before.plus(v4(90))))
    assert lost(stored(before), stored(before.minus(v4(3, 35)))) == RangeSet(
        map(parse_range, ("10.0.0.3", "10.0.0.35"))
    )
    assert lost(stored(Entries().plus(v4(1, 2))), None) == RangeSet([parse_range("10.0.0.1-10.0.0.2")])
