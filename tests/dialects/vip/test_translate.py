"""Objects to values and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.operator import built
from tests.support.vip import service

from berth.dialects.vip import kinds
from berth.dialects.vip.clone import follow, new_clone
from berth.dialects.vip.translate import (
    BadWish,
    Owner,
    address_block,
    block_of,
    holder_of,
    ip_name,
    ip_object,
    owner_of,
    pins,
    read_segment,
    with_ingress,
)
from berth.net import Block, Family


@given(
    st.one_of(
        st.integers(0, 2**32 - 1).map(lambda n: (4, n)), st.integers(0, 2**128 - 1).map(lambda n: (6, n))
    )
)
def test_every_address_has_one_name_and_every_name_one_address(found: tuple[int, int]) -> None:
    family = Family(found[0])
    block = Block(family, found[1], family.width)
    name = ip_name(block)
    assert block_of(built(kinds.IP, name)) == block
    assert len(name) <= 63
    assert name == name.lower()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("1.1.1.5", "1.1.1.5"),
        ("2001:db8::1", "2001-0db8-0000-0000-0000-0000-0000-0001"),
        ("::", "-".join(["0000"] * 8)),
    ],
)
def test_an_ipv6_address_is_written_out_in_full(text: str, name: str) -> None:
    assert ip_name(address_block(text)) == name


@pytest.mark.parametrize("name", ["my-address", "2001-db8--1", "1.1.1", "01.1.1.1"])
def test_a_name_that_is_no_address_is_a_strangers(name: str) -> None:
    assert block_of(built(kinds.IP, name)) is None


def test_the_label_tells_the_owners_kind() -> None:
    block = address_block("1.1.1.5")
    for label, kind in ((kinds.GROUP_LABEL, "Service"), (kinds.MAPPING_LABEL, "VirtualIP")):
        owned = Owner(kind, "ns", "web", "uid-1")
        ip = ip_object(block, label, "pool", owned)
        assert owner_of(ip) == owned
        assert holder_of(ip) == f"{kind}/ns/web"
    assert holder_of(built(kinds.IP, "1.1.1.5")) == "IP/1.1.1.5"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (None, "spec.segment is missing"),
        ({"segment": ""}, "spec.segment is missing"),
        ({"segment": "garbage"}, "invalid CIDR address: garbage"),
        ({"segment": "1.1.1.1"}, "invalid CIDR address: 1.1.1.1"),
        ({"segment": "1.1.1.0/33"}, "invalid CIDR address: 1.1.1.0/33"),
    ],
)
def test_a_bad_group_has_a_fault_and_no_addresses(spec: dict[str, Any] | None, fault: str) -> None:
    segment = read_segment(built(kinds.IPGROUP, "bad", spec))
    assert segment.fault == fault
    assert segment.pool.ranges == ()


def test_a_huge_segment_costs_nothing() -> None:
    """Upstream never comes back from 0.0.0.0/0."""
    spec = {"segment": "0.0.0.0/0", "excludedIPs": []}
    segment = read_segment(built(kinds.IPGROUP, "all", spec))
    assert segment.range is not None
    assert segment.range.size == 2**32


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({"loadBalancerIP": "1.1.2"}, "could not be parsed"),
        ({"loadBalancerIP": "1.1.1.1/32"}, "could not be parsed"),
        ({"annotations": {kinds.WANTED_ADDRESS: "1.1.1.1,1.1.1.2"}}, "both 1.1.1.1 and 1.1.1.2"),
        ({"loadBalancerIP": "::1"}, "family"),
    ],
)
def test_a_wish_that_makes_no_sense_is_told(more: dict[str, Any], wrong: str) -> None:
    with pytest.raises(BadWish, match=wrong):
        pins(service("web", ipFamilies=["IPv4"], **more))


def test_the_same_wish_twice_is_one() -> None:
    wish = service("web", loadBalancerIP="1.1.1.1", annotations={kinds.WANTED_ADDRESS: " 1.1.1.1 "})
    assert pins(wish) == {Family.V4: address_block("1.1.1.1")}


def test_entries_of_the_status_keep_what_the_server_added() -> None:
    shown = {"loadBalancer": {"ingress": [{"ip": "1.1.1.1", "ipMode": "VIP"}, {"ip": "1.1.1.2"}]}}
    status = with_ingress({"status": shown}, (address_block("1.1.1.1"),))
    assert status["loadBalancer"]["ingress"] == [{"ip": "1.1.1.1", "ipMode": "VIP"}]


def test_a_clone_that_is_what_its_original_is_needs_no_patch() -> None:
    vip = built(kinds.VIRTUAL_IP, "vip", {"service": "web"}, namespace="ns", uid="u")
    original = service("web", "NodePort", labels={"a": "b"}, sessionAffinity="ClientIP")
    original["spec"]["ports"][0]["nodePort"] = 30000
    clone = new_clone(vip, original, "5.5.5.5")
    assert follow(clone, original) is None
    original["spec"]["ports"][0]["port"] = 81
    del original["metadata"]["labels"]["a"]
    change = follow(clone, original)
    assert change is not None
    assert change["metadata"] == {"labels": {"a": None}}
    assert [port["port"] for port in change["spec"]["ports"]] == [81]
