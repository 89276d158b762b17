"""Annotations read and filled in, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.dialects.vitistack import defaults, kinds, service_annotations
from berth.dialects.vitistack.defaults import Defaults
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.records import Record, body, parse
from berth.dialects.vitistack.service_annotations import Families, Terms
from berth.kube import meta
from berth.leasing.holders import Identity
from berth.net import Address, Family

DEFAULTS = Defaults("inet", False, lambda: "pre-shared-key-x")
FULL = {
    kinds.ADDRESSES: "83.118.168.10/32",
    kinds.SHARING_KEY: "k",
    kinds.DENY: "false",
    kinds.FAMILY: "ipv4",
    kinds.RETENTION: "0",
    kinds.SECRET_NAME: "default",
    kinds.ZONE: "inet",
}


def service(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    about = {"name": "s", "namespace": "n", "annotations": annotations or {}}
    return {"metadata": about, "spec": {"type": "LoadBalancer", **spec}}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("83.118.168.10", ["83.118.168.10"]),
        ("83.118.168.10/32", ["83.118.168.10"]),
        (" 83.118.168.10 , 2A05:1234:0::2/128 ", ["83.118.168.10", "2a05:1234::2"]),
        ("2a05:1234::2", ["2a05:1234::2"]),
        (" ", []),
    ],
)
def test_both_spellings_of_an_address_count(text: str, found: list[str]) -> None:
    assert [str(one) for one in service_annotations.read_addresses(text, "s")] == found


@pytest.mark.parametrize(
    "text", ["83.118.168.0/24", "foo", "1.2.3.4,", "::ffff:1.2.3.4", "01.2.3.4", "fe80::1%eth0"]
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(No, match="invalid ip-address detected for Service: s: "):
        service_annotations.read_addresses(text, "s")


@pytest.mark.parametrize(("text", "days"), [("0", 0), ("30", 30), ("+7", 7), ("007", 7)])
def test_retention_is_a_number_of_days(text: str, days: int) -> None:
    assert service_annotations.read_retention(text) == days


@pytest.mark.parametrize("text", ["", "31", "-1", "abc", "1.5", "٣", "999999999999"])
def test_any_other_retention_is_refused(text: str) -> None:
    with pytest.raises(No):
        service_annotations.read_retention(text)


def test_spelling_and_order_are_no_change() -> None:
    both = {**FULL, kinds.FAMILY: "dual", kinds.ADDRESSES: "2a05:1234::2/128,83.118.168.10/32"}
    other = {
        **both,
        kinds.ADDRESSES: " 83.118.168.10 ,2A05:1234:0:0::2",
        kinds.DENY: "F",
        kinds.RETENTION: "00",
    }
    assert service_annotations.same(both, other)
    assert not service_annotations.same(both, {**both, kinds.RETENTION: "1"})
    assert not service_annotations.same(both, {**both, kinds.ZONE: "hnet-public"})


def test_a_spoiled_value_that_stays_is_no_change() -> None:
    spoiled = {**FULL, kinds.RETENTION: "abc"}
    assert service_annotations.same(spoiled, spoiled)
    assert not service_annotations.same(spoiled, {**spoiled, kinds.RETENTION: "def"})


def test_a_new_service_gets_the_defaults() -> None:
    made = defaults.filled(service(), None, DEFAULTS)
    expected = {key: text for key, text in FULL.items() if key != kinds.ADDRESSES}
    assert meta.annotations(made) == {**expected, kinds.SHARING_KEY: "pre-shared-key-x"}


def test_a_live_service_keeps_what_it_does_not_say() -> None:
    live = service({**FULL, kinds.ZONE: "hnet-public", kinds.SECRET_NAME: "mine", kinds.RETENTION: "5"})
    made = defaults.continued(defaults.filled(service(), live, DEFAULTS), live, DEFAULTS)
    assert meta.annotations(made) == {**FULL, kinds.ZONE: "hnet-public", kinds.SECRET_NAME: "mine"}


def test_the_family_that_is_no_longer_wanted_leaves_the_list() -> None:
    both = {**FULL, kinds.FAMILY: "dual", kinds.ADDRESSES: "2a05:1234::2/128,83.118.168.10/32"}
    live, new = service(both), service({**both, kinds.FAMILY: "ipv4"})
    made = defaults.continued(defaults.filled(new, live, DEFAULTS), live, DEFAULTS)
    assert meta.annotations(made)[kinds.ADDRESSES] == "83.118.168.10/32"


def test_a_moved_zone_does_not_keep_addresses() -> None:
    live, new = service(FULL), service({**FULL, kinds.ZONE: "hnet-public", kinds.ADDRESSES: ""})
    made = defaults.continued(defaults.filled(new, live, DEFAULTS), live, DEFAULTS)
    assert meta.annotations(made)[kinds.ADDRESSES] == ""


def test_families_that_contradict_are_refused() -> None:
    with pytest.raises(No, match="starts with IPv4"):
        defaults.with_families(service(ipFamilies=["IPv4"]), Families.IPV6, creating=True)


def test_the_input_is_never_edited() -> None:
    live, new = service(FULL), service({kinds.RETENTION: "3"}, loadBalancerIP="83.118.168.10")
    before = repr(new)
    made = defaults.continued(defaults.filled(new, live, DEFAULTS), live, DEFAULTS)
    defaults.with_addresses(made, service_annotations.listed(meta.annotations(made)), bare=True)
    assert repr(new) == before


addresses = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda value: Address(Family.V4, value)),
    st.integers(0, 2**128 - 1).map(lambda value: Address(Family.V6, value)),
)


@given(addresses, st.text(max_size=20), st.integers(0, 30), st.booleans())
def test_a_record_reads_as_it_was_written(address: Address, key: str, days: int, deny: bool) -> None:
    who = Identity("s", "namespace-id", "cluster-id")
    record = Record("n", who, "inet", address, "default", key, Terms(days, deny), uid="u", until=7.0)
    lying = body("records-1", "ipam-system", [record])
    assert list(parse(lying)) == [record]
    assert len(record.name) < 253


def test_a_record_edited_beyond_recognition_is_left_alone() -> None:
    texts = {"a": "nonsense", "b": "{}", "c": "[]", "d": '{"address": 1}'}
    assert not list(parse({"metadata": {"name": "records-1"}, "data": texts}))
