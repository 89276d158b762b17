"""An entry's addresses and an object's name (contract 3.6 and 3.8), as tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import budget
from tests.support.metal3 import SEED, B, pool, ranged

from berth.dialects.metal3.translate import address_name, addresses_of_name, entry_range, read_pool
from berth.errors import InvalidText
from berth.net import Block, Family, parse_address, parse_block

ENTRIES: list[Any] = [
    ({"start": "10.0.0.5"}, "10.0.0.5", "255.255.255.255"),
    ({"start": "2001:db8::1"}, "2001:db8::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ({"start": "10.0.0.5", "end": "10.0.0.9"}, "10.0.0.5", "10.0.0.9"),
    ({"start": "10.0.0.5", "subnet": "10.0.0.0/24"}, "10.0.0.5", "10.0.0.255"),
    ({"start": "10.0.0.5", "end": "10.0.0.9", "subnet": "10.0.0.0/24"}, "10.0.0.5", "10.0.0.9"),
    ({"start": "10.0.0.5", "end": "10.0.9.9", "subnet": "10.0.0.0/24"}, "10.0.0.5", "10.0.0.255"),
    ({"subnet": "192.168.0.0/24"}, "192.168.0.1", "192.168.0.255"),
    ({"subnet": "192.168.1.1/26"}, "192.168.1.2", "192.168.1.63"),
    ({"subnet": "192.168.0.10/24"}, "192.168.0.11", "192.168.0.255"),
    ({"subnet": "10.0.0.0/30"}, "10.0.0.1", "10.0.0.3"),
    ({"subnet": "10.0.0.0/31"}, "10.0.0.1", "10.0.0.1"),
    ({"subnet": "10.0.0.0/24", "end": "10.0.0.2"}, "10.0.0.1", "10.0.0.2"),
    ({"subnet": "0.0.0.0/0"}, "0.0.0.1", "255.255.255.255"),
    ({"subnet": "2001:db8::/08"}, "2001:db8::1", "20ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
]


@pytest.mark.parametrize(("entry", "first", "last"), ENTRIES)
def test_first_and_last_address_of_an_entry(entry: dict[str, str], first: str, last: str) -> None:
    found = entry_range(entry)
    assert found is not None
    assert (found.first, found.last) == (parse_address(first).value, parse_address(last).value)


EMPTY: list[Any] = [
    {},
    {"end": "10.0.0.9"},
    {"subnet": "10.0.0.1/32"},
    {"subnet": "2001:db8::/128"},
    {"subnet": "10.0.0.1/31"},
    {"subnet": "255.255.255.255/32"},
    {"subnet": "255.255.255.255/24"},
    {"subnet": "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"},
    {"start": "10.0.1.5", "subnet": "10.0.0.0/24"},
    {"start": "10.0.0.5", "subnet": "2001:db8::/64"},
    {"start": "10.0.0.9", "end": "10.0.0.5"},
    {"start": "10.0.0.9", "end": "2001:db8::1"},
]


@pytest.mark.parametrize("entry", EMPTY, ids=str)
def test_an_entry_without_addresses(entry: dict[str, str]) -> None:
    assert entry_range(entry) is None


@pytest.mark.parametrize(
    "entry", [{"start": "foo"}, {"subnet": "10.0.0.0/33"}, {"start": "10.0.0.1", "end": "x"}]
)
def test_nonsense_is_named(entry: dict[str, str]) -> None:
    with pytest.raises(InvalidText):
        entry_range(entry)


NAMES: list[Any] = [
    ("test1-prov", "192.168.0.13", "test1-prov-192-168-0-13"),
    ("pool6", "2001:db8::a", "pool6-2001-db8--a"),
    ("pool6", "2001:db8::", "pool6-2001-db8"),
    ("pool6", "::1", "pool6---1"),
    ("pool6", "::", "pool6"),
]


@pytest.mark.parametrize(("prefix", "text", "name"), NAMES)
def test_the_name_of_an_address_object_and_back(prefix: str, text: str, name: str) -> None:
    assert address_name(prefix, text) == name
    assert parse_block(text) in addresses_of_name(prefix, name)


@pytest.mark.parametrize("name", ["foo", "", "a-", "a-x-0-0-1", "b-10-0-0-1", "a-1-2-3-4-5-6-7-8-9"])
def test_a_name_of_another_kind_says_no_address(name: str) -> None:
    assert addresses_of_name("a", name) == []


def test_one_name_may_be_that_of_an_address_of_either_family() -> None:
    """In one pool the second of the two is passed over: the name is the lock."""
    assert addresses_of_name("a", "a-10-0-0-1") == [parse_block("10.0.0.1"), parse_block("10:0:0:1::")]


@budget(300)
@given(st.sampled_from(list(Family)), st.data(), st.sampled_from(["a", "a-", "a.b", "pool6"]))
def test_every_address_is_found_again_from_its_name(family: Family, data: st.DataObject, prefix: str) -> None:
    value = data.draw(st.integers(0, (1 << family.width) - 1))
    block = parse_block(Block(family, value, family.width).address)
    assert block in addresses_of_name(prefix, address_name(prefix, block.address))


@budget(300)
@given(st.lists(st.integers(0, 2**128 - 1), min_size=2, max_size=2, unique=True))
def test_two_addresses_have_two_names(values: list[int]) -> None:
    one, two = (address_name("a", Block(Family.V6, value, 128).address) for value in values)
    assert one != two


def test_the_entry_that_contains_an_address_decides_what_goes_with_it() -> None:
    """Contract 3.7: overrides field by field, DNS servers as a whole."""
    spec = read_pool(pool("pool", B))
    first, second = (spec.netconfig_of(parse_block(text)) for text in ("10.0.1.10", "10.0.2.15"))
    assert (first.prefix, first.gateway, first.dns_servers) == (24, "10.0.0.1", ("8.8.8.8", "8.8.4.4"))
    assert (second.prefix, second.gateway, second.dns_servers) == (16, "10.0.2.1", ("1.1.1.1",))


def test_an_address_of_no_entry_gets_what_the_pool_says() -> None:
    """An adopted one outside, given again: never another entry's gateway."""
    found = read_pool(pool("pool", B)).netconfig_of(parse_block("172.16.0.1"))
    assert (found.prefix, found.gateway, found.dns_servers) == (22, "10.0.0.1", ("8.8.8.8", "8.8.4.4"))


def test_a_pool_as_the_engine_sees_it() -> None:
    """M-047: 21 + 62 + 127 addresses."""
    read = read_pool(pool("pool", SEED, namespace="default"))
    assert [found.size for found in read.pool.ranges] == [21, 62, 127]
    assert read.pool.reservations == {"claim1": parse_block("192.168.0.12")}
    assert read.pool.name == "default/pool"


def test_a_pool_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidText):
        read_pool(pool("pool", ranged({"start": "foo"})))


ENTRY = st.tuples(st.integers(0, 60), st.integers(0, 20), st.sampled_from(["10.0.0.{}", "fd00::{:x}"]))


@given(st.lists(ENTRY, max_size=8), st.integers(0, 90), st.sampled_from(["10.0.0.{}", "fd00::{:x}"]))
def test_the_first_entry_that_has_an_address_decides_what_goes_with_it(
    entries: list[tuple[int, int, str]], value: int, text: str
) -> None:
    """Entries from before us may overlap, lie in each other, and mix families."""
    pools = [
        {"start": form.format(start), "end": form.format(start + size), "gateway": form.format(200 + rank)}
        for rank, (start, size, form) in enumerate(entries)
    ]
    found = read_pool(pool("pool", {"namePrefix": "p", "pools": pools})).netconfig_of(
        parse_block(text.format(value))
    )
    hit = (
        entry["gateway"]
        for entry, (start, size, form) in zip(pools, entries, strict=True)
        if form == text and start <= value <= start + size
    )
    assert found.gateway == next(hit, None)
