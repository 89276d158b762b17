"""Addresses that nobody holds: what the ledger's memory gives, which is what the engine decides."""

from __future__ import annotations

import pytest

from berth.errors import Taken
from berth.leasing import Pool, Quota, Reason, Refusal
from berth.net import parse_range
from berth.store.memory import PoolMemory

ZONE = "z/4"


def memory(*ranges: str, without: str = "") -> PoolMemory:
    found = PoolMemory()
    excluded = tuple(map(parse_range, without.split()))
    found.configure({ZONE: Pool(ZONE, tuple(map(parse_range, ranges)), excluded)})
    return found


def refused(answer: str | Refusal) -> Reason:
    assert isinstance(answer, Refusal)
    return answer.reason


def test_a_named_address_is_given_where_it_lies_in_the_zone_and_is_not_excluded() -> None:
    there = memory("192.0.2.0/29", without="192.0.2.1")
    assert there.grant(ZONE, "192.0.2.5", None) == "192.0.2.5"
    assert refused(there.grant(ZONE, "192.0.2.1", None)) is Reason.PIN_OUTSIDE
    assert refused(there.grant(ZONE, "198.51.100.1", None)) is Reason.PIN_OUTSIDE


def test_a_named_address_that_only_memory_calls_taken_is_no_refusal() -> None:
    """The database was asked first, and it says nobody has it: memory is read anew."""
    there = memory("192.0.2.0/29")
    assert there.grant(ZONE, "192.0.2.5", None) == "192.0.2.5"
    with pytest.raises(Taken):
        there.grant(ZONE, "192.0.2.5", None)


def test_what_was_named_is_not_given_as_the_next_free() -> None:
    there = memory("192.0.2.0/31")
    assert there.grant(ZONE, "192.0.2.0", None) == "192.0.2.0"
    assert there.grant(ZONE, None, None) == "192.0.2.1"
    assert refused(there.grant(ZONE, None, None)) is Reason.POOL_EXHAUSTED
    there.freed("192.0.2.0")
    assert there.grant(ZONE, None, None) == "192.0.2.0"


def test_a_zone_of_which_everything_is_excluded_is_full() -> None:
    assert refused(memory("192.0.2.0/30", without="192.0.2.0/24").grant(ZONE, None, None)) == "PoolExhausted"


@pytest.mark.parametrize("named", [None, "192.0.2.3", "198.51.100.1"])
def test_a_quota_that_is_used_up_refuses_named_and_unnamed_alike(named: str | None) -> None:
    assert refused(memory("192.0.2.0/29").grant(ZONE, named, Quota(1, 1))) is Reason.QUOTA_EXCEEDED
