"""One address: canonical text, and an order only within a family."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import budget

from berth.net import Address, Family


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "::"),
        (1, "::1"),
        (1 << 112, "1::"),
        (0x20010DB8 << 96 | 1, "2001:db8::1"),
        # the first of two equally long runs of zeros is compressed, a single zero group is not
        (0x2001_0DB8_0000_0000_0001_0000_0000_0001, "2001:db8::1:0:0:1"),
        (0x2001_0DB8_0000_0001_0001_0001_0001_0001, "2001:db8:0:1:1:1:1:1"),
        (Family.V6.top, ":".join(["ffff"] * 8)),
    ],
)
def test_ipv6_text_is_that_of_rfc_5952(value: int, text: str) -> None:
    assert str(Address(Family.V6, value)) == text


@budget(200)
@given(st.integers(0, Family.V4.top))
def test_ipv4_text_agrees_with_the_standard_library(value: int) -> None:
    assert str(Address(Family.V4, value)) == str(IPv4Address(value))


@budget(300)
@given(
    st.one_of(
        st.integers(0, Family.V6.top), st.lists(st.sampled_from([0, 0, 1, 0xABCD]), min_size=8, max_size=8)
    )
)
def test_ipv6_text_agrees_with_the_standard_library(value: int | list[int]) -> None:
    if isinstance(value, list):
        value = int("".join(f"{group:04x}" for group in value), 16)
    if value >> 32 != 0xFFFF:  # newer Pythons write IPv4-mapped addresses with dots; ours are IPv4 by then
        assert str(Address(Family.V6, value)) == str(IPv6Address(value))


def test_addresses_of_one_family_are_ordered() -> None:
    low, high = Address(Family.V4, 9), Address(Family.V4, 10)
    assert low < high
    assert low <= high
    assert high > low
    assert high >= low
    assert sorted([high, low]) == [low, high]
    assert low == Address(Family.V4, 9)


def test_addresses_of_two_families_are_never_equal_and_cannot_be_compared() -> None:
    four, six = Address(Family.V4, 1), Address(Family.V6, 1)
    assert four != six
    with pytest.raises(TypeError, match="one family"):
        _ = four < six


@pytest.mark.parametrize(("family", "value"), [(Family.V4, 1 << 32), (Family.V6, 1 << 128), (Family.V4, -1)])
def test_a_number_beyond_the_family_is_no_address(family: Family, value: int) -> None:
    with pytest.raises(ValueError, match="no IPv"):
        Address(family, value)
