"""Objects ↔ values: what is read from specs, in which order faults are found, what is written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from berth.dialects.kubipam.kinds import CIDR, FINALIZER
from berth.dialects.kubipam.translate import (
    asked_range,
    block_of,
    granted,
    is_settled,
    range_of,
    read_range,
    read_wish,
    referred,
    refused,
)
from berth.errors import InvalidText
from berth.net import Family, RangeSet, parse_block

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def range_object(*ranges: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": "p"}, "spec": {"ranges": list(ranges), **spec}}


def request(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    meta = {"namespace": "n", "name": "r", "uid": "u", "finalizers": [FINALIZER]}
    return {"metadata": meta, "spec": {"ipam": {"name": "p"}, **spec}, "status": status or {}}


@pytest.mark.parametrize(
    ("entries", "blocks"),
    [
        (["10.0.0.9-10.0.0.14"], "10.0.0.9/32 10.0.0.10/31 10.0.0.12/31 10.0.0.14/32"),
        (["10.0.0.8-10.0.0.15"], "10.0.0.8/29"),
        (["10.0.0.0/25", "10.0.0.128/25"], "10.0.0.0/24"),
        (["10.0.0.0/25", "10.0.0.128/28", "10.0.0.160/28"], "10.0.0.0/25 10.0.0.128/28 10.0.0.160/28"),
        (["10.0.0.0-10.0.0.10", "10.0.0.11-10.0.0.20"], "10.0.0.0/28 10.0.0.16/30 10.0.0.20/32"),
        (["10.0.0.5", "10.0.0.6", "10.0.0.7"], "10.0.0.5/32 10.0.0.6/31"),
        (
            ["10.0.8.0-10.0.247.0"],
            "10.0.8.0/21 10.0.16.0/20 10.0.32.0/19 10.0.64.0/18 10.0.128.0/18 10.0.192.0/19 10.0.224.0/20 "
            "10.0.240.0/22 10.0.244.0/23 10.0.246.0/24 10.0.247.0/32",
        ),
        (
            ["192.168.1.10-192.168.1.20", "192.168.1.15-192.168.1.30", "192.168.1.31"],
            "192.168.1.10/31 192.168.1.12/30 192.168.1.16/28",
        ),
    ],
)
def test_entries_become_the_contracts_blocks(entries: list[str], blocks: str) -> None:
    found = RangeSet(read_range(range_object(*entries)).pool.ranges).blocks()
    assert " ".join(map(str, found)) == blocks


def test_faults_are_found_in_the_contracts_order() -> None:
    everything = {"mode": "x", "chunkSize": 99}
    for ranges, spec, message in (
        (["bad", "10.0.0.1"], everything, 'invalid ip range "bad"'),
        (["10.0.0.1"], everything, 'invalid mode "x"'),
        (["10.0.0.1"], {"chunkSize": 99}, "chunk size 99"),
    ):
        with pytest.raises(InvalidText, match=message):
            read_range(range_object(*ranges, **spec))


def test_an_empty_list_counts_as_ipv4() -> None:
    spec = read_range(range_object())
    assert (spec.family, spec.width) == (Family.V4, 32)


def test_a_size_that_cannot_be_is_found_before_the_text() -> None:
    spec = read_range(range_object("10.0.0.0/24"))
    with pytest.raises(InvalidText, match="invalid size -3"):
        read_wish(request(size=-3, request="foo"), spec)
    with pytest.raises(InvalidText, match="invalid request cidr or ip  foo : invalid CIDR address: foo"):
        read_wish(request(request=" foo "), spec)


def test_a_range_is_named_by_the_reference_or_where_the_block_was_taken() -> None:
    elsewhere = {"name": "q", "namespace": "m"}
    assert asked_range(request()) == "n/p"
    assert asked_range(request(ipam=elsewhere)) == "m/q"
    moved = request({"cidr": "10.0.0.0/32", "range": "n/p"}, ipam=elsewhere)
    assert range_of(moved) == "n/p"
    assert referred(moved) == {"n/p", "m/q"}
    assert range_of(request({"cidr": "10.0.0.0/32"}, ipam=elsewhere)) == "m/q"


def test_a_grant_clears_the_message_and_says_everything_in_one_status() -> None:
    waiting = request({"state": "Busy", "message": "allocation with size 32 failed"})
    status = granted(waiting, parse_block("10.0.0.5/32"), NOW)
    (ready,) = status.pop("conditions")
    assert (ready["status"], ready["reason"]) == ("True", "AddressAllocated")
    assert status == {"cidr": "10.0.0.5/32", "state": "Ready", "range": "n/p"}
    shown = request(status)
    assert not is_settled(shown, FINALIZER)  # a backup of it would not say what it has
    shown["metadata"]["annotations"] = {CIDR: "10.0.0.5/32"}
    assert is_settled(shown, FINALIZER)
    refusal = refused(waiting, "x", "PoolInvalid", NOW, busy=False)
    (ready,) = refusal.pop("conditions")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "PoolInvalid", "x")
    assert refusal == {"state": "Invalid", "message": "x"}


@pytest.mark.parametrize(("text", "cidr"), [("10.0.0.7/24", "10.0.0.0/24"), ("junk", "None"), ("", "None")])
def test_a_cidr_is_read_as_its_network(text: str, cidr: str) -> None:
    """Upstream stored host bits verbatim (contract 2.7); what it granted is the network."""
    assert str(block_of(request({"cidr": text}))) == cidr
