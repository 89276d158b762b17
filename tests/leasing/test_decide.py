"""Decisions: what a claim gets, from where, and with which reason it gets nothing."""

from __future__ import annotations

import pytest

from berth.leasing import Claim, Decision, Grant, Keep, Pool, Quota, Reason, Refusal, Space, Strategy, decide
from berth.net import Block, Family, parse_block, parse_range


def pool(
    name: str,
    *ranges: str,
    without: str = "",
    reserved: dict[str, str] | None = None,
    strategy: str = "first",
) -> Pool:
    return Pool(
        name,
        tuple(map(parse_range, ranges)),
        tuple(map(parse_range, without.split())),
        {key: parse_block(text) for key, text in (reserved or {}).items()},
        Strategy(strategy),
    )


def told(decision: Decision) -> str:
    """A decision in one line."""
    match decision:
        case Grant(space=space, block=block):
            return f"{space.pool.name} {block}"
        case Keep(space=space, block=block):
            return f"keep {space.pool.name} {block}"
        case Refusal(reason=reason):
            return str(reason)


def ask(
    spaces: list[Space],
    holder: str,
    *,
    name: str = "",
    family: int = 0,
    length: int | None = None,
    pin: str = "",
) -> Decision:
    claim = Claim(holder, name, Family(family) if family else None, length, parse_block(pin) if pin else None)
    decision = decide(claim, spaces)
    if isinstance(decision, Grant):
        decision.take()
    return decision


def test_addresses_are_granted_in_the_order_of_the_ranges_until_the_pool_is_full() -> None:
    spaces = [Space(pool("p", "10.0.9.0-10.0.9.1", "10.0.0.0/30", without="10.0.0.2"))]
    granted = [told(ask(spaces, f"h{i}")) for i in range(6)]
    assert granted == [
        "p 10.0.9.0/32",
        "p 10.0.9.1/32",
        "p 10.0.0.0/32",
        "p 10.0.0.1/32",
        "p 10.0.0.3/32",
        "PoolExhausted",
    ]
    assert spaces[0].release(parse_block("10.0.9.1"), "h1")
    assert told(ask(spaces, "h6")) == "p 10.0.9.1/32"


def test_overlapping_ranges_give_each_address_once_to_the_first_that_has_it() -> None:
    spaces = [Space(pool("p", "10.0.0.2-10.0.0.3", "10.0.0.0-10.0.0.4", "10.0.0.1"))]
    granted = [told(ask(spaces, f"h{i}")) for i in range(6)]
    assert [line.removeprefix("p 10.0.0.") for line in granted] == [
        "2/32",
        "3/32",
        "0/32",
        "1/32",
        "4/32",
        "PoolExhausted",
    ]


def test_a_holder_keeps_what_it_has_and_two_families_are_two_claims() -> None:
    spaces = [Space(pool("p", "10.0.0.0/30", "fd00::/126"))]
    assert told(ask(spaces, "svc", family=4)) == "p 10.0.0.0/32"
    assert told(ask(spaces, "svc", family=6)) == "p fd00::/128"
    assert told(ask(spaces, "svc", family=4)) == "keep p 10.0.0.0/32"
    assert told(ask(spaces, "svc", family=6)) == "keep p fd00::/128"
    assert told(ask(spaces, "svc", pin="10.0.0.0")) == "keep p 10.0.0.0/32"
    assert told(ask(spaces, "svc", pin="10.0.0.2")) == "p 10.0.0.2/32"


def test_a_claim_that_names_no_family_follows_the_order_of_the_ranges() -> None:
    spaces = [Space(pool("p", "fd00::1", "10.0.0.1", "fd00::2"))]
    assert [told(ask(spaces, f"h{i}")) for i in range(4)] == [
        "p fd00::1/128",
        "p 10.0.0.1/32",
        "p fd00::2/128",
        "PoolExhausted",
    ]


def test_pools_are_asked_in_turn_and_a_lease_in_any_of_them_is_kept() -> None:
    spaces = [Space(pool("a", "10.0.0.1")), Space(pool("b", "10.0.1.1-10.0.1.2"))]
    assert [told(ask(spaces, f"h{i}")) for i in range(4)] == [
        "a 10.0.0.1/32",
        "b 10.0.1.1/32",
        "b 10.0.1.2/32",
        "PoolExhausted",
    ]
    assert told(ask(spaces, "h1")) == "keep b 10.0.1.1/32"
    assert told(ask(spaces, "pinned", pin="10.0.1.2")) == "PinTaken"
    assert spaces[1].release(parse_block("10.0.1.2"))
    assert told(ask(spaces, "pinned", pin="10.0.1.2")) == "b 10.0.1.2/32"


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        ("10.0.0.9", "p 10.0.0.9/32"),
        ("10.0.0.64/26", "p 10.0.0.64/26"),
        ("10.0.0.128/25", "PinTaken"),  # part of it is leased
        ("10.0.0.200", "PinTaken"),  # in a leased block
        ("10.0.0.0/24", "PinTaken"),
        ("10.0.0.5", "PinTaken"),  # reserved for another
        ("10.0.0.4/30", "PinTaken"),  # part of it is reserved
        ("10.0.0.6", "PinOutside"),  # excluded
        ("10.9.0.1", "PinOutside"),
        ("10.0.0.0/16", "PinOutside"),
        ("fd00::1", "PinOutside"),
    ],
)
def test_a_pin_is_granted_exactly_or_refused_with_its_reason(strategy: str, pin: str, expected: str) -> None:
    ranges = pool("p", "10.0.0.0/24", without="10.0.0.6", reserved={"db": "10.0.0.5"}, strategy=strategy)
    space = Space(ranges, [(parse_block("10.0.0.192/26"), "other")])
    if pin in ("10.0.0.0/24", "10.0.0.4/30"):  # the exclusion weighs more than what is taken
        expected = "PinOutside"
    assert told(ask([space], "h", pin=pin)) == expected


def test_a_refused_pin_names_who_has_it() -> None:
    space = Space(pool("p", "10.0.0.0/24"), [(parse_block("10.0.0.64/26"), "other")])
    decision = ask([space], "h", pin="10.0.0.70")
    assert isinstance(decision, Refusal)
    assert (decision.reason, decision.holder) == (Reason.PIN_TAKEN, "other")
    assert decision.detail == "10.0.0.70/32 is taken by other"


def test_what_is_reserved_goes_to_the_claim_of_that_name_only() -> None:
    spaces = [Space(pool("p", "10.0.0.0-10.0.0.2", reserved={"db": "10.0.0.0", "gone": "10.9.9.9"}))]
    assert told(ask(spaces, "h1", name="web")) == "p 10.0.0.1/32"
    assert told(ask(spaces, "h2", name="db", pin="10.0.0.2")) == "PinConflict"
    assert told(ask(spaces, "h2", name="db")) == "p 10.0.0.0/32"
    assert told(ask(spaces, "h2", name="db")) == "keep p 10.0.0.0/32"
    assert told(ask(spaces, "h3", name="db")) == "ReservationTaken"
    assert told(ask(spaces, "h4", name="gone")) == "ReservationOutside"
    assert spaces[0].release(parse_block("10.0.0.0"), "h2")
    assert told(ask(spaces, "h5")) == "p 10.0.0.2/32"
    assert told(ask(spaces, "h6")) == "PoolExhausted", "given back, it is reserved again"
    assert told(ask(spaces, "h3", name="db", pin="10.0.0.0")) == "p 10.0.0.0/32"


def test_a_reservation_of_the_other_family_does_not_stand_in_the_way() -> None:
    spaces = [Space(pool("p", "10.0.0.0/30", "fd00::/126", reserved={"db": "10.0.0.3"}))]
    assert told(ask(spaces, "h", name="db", family=6)) == "p fd00::/128"
    assert told(ask(spaces, "h", name="db", family=4)) == "p 10.0.0.3/32"


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize(
    ("ranges", "family", "length", "expected"),
    [
        ("10.0.0.0/24", 0, 16, "TooLarge"),
        ("10.0.0.1-10.0.0.254", 0, 24, "TooLarge"),
        ("10.0.0.0/24", 0, 33, "InvalidLength"),
        ("10.0.0.0/24", 0, -1, "InvalidLength"),
        ("10.0.0.0/24", 6, None, "FamilyAbsent"),
        ("", 0, None, "PoolExhausted"),
        ("", 0, 24, "PoolExhausted"),
        ("10.0.0.0/24 fd00::/120", 0, 64, "TooLarge"),  # no length of IPv4, and too large for the IPv6 range
    ],
)
def test_a_claim_nothing_can_serve_is_told_why(
    strategy: str, ranges: str, family: int, length: int | None, expected: str
) -> None:
    spaces = [Space(pool("p", *ranges.split(), strategy=strategy))]
    assert told(ask(spaces, "h", family=family, length=length)) == expected


def test_a_full_pool_is_exhausted_and_not_too_small() -> None:
    spaces = [Space(pool("p", "10.0.0.0/24"), [(parse_block("10.0.0.7"), "other")])]
    assert told(ask(spaces, "h", length=24)) == "PoolExhausted"


def test_no_pool_at_all_is_a_reason_of_its_own() -> None:
    assert told(ask([], "h")) == "NoPool"


@pytest.mark.parametrize(("family", "length"), [(6, None), (4, 31)])
def test_a_pin_that_is_not_what_the_claim_asks_for_is_a_conflict(family: int, length: int | None) -> None:
    spaces = [Space(pool("p", "10.0.0.0/24"))]
    assert told(ask(spaces, "h", pin="10.0.0.4", family=family, length=length)) == "PinConflict"


def test_deciding_changes_nothing() -> None:
    space = Space(pool("p", "10.0.0.0/30", strategy="round-robin"))
    before = space.usage(), dict(space.cursors)
    assert decide(Claim("h"), (space,)) == decide(Claim("h"), (space,))
    assert (space.usage(), dict(space.cursors)) == before


def test_blocks_of_a_pool_of_addresses_lie_in_one_range_the_first_with_room() -> None:
    spaces = [Space(pool("p", "10.0.1.4-10.0.1.11", "10.0.0.0/24"))]
    assert told(ask(spaces, "h0", length=30)) == "p 10.0.1.4/30"
    assert told(ask(spaces, "h1")) == "p 10.0.1.8/32"
    assert told(ask(spaces, "h2", length=30)) == "p 10.0.0.0/30"
    assert told(ask(spaces, "h3", length=31)) == "p 10.0.1.10/31"
    assert told(ask(spaces, "h4", length=25)) == "p 10.0.0.128/25"


def grants_of(space: Space) -> set[Block]:
    return {lease.block for lease in space.leases()}


def test_a_claim_for_a_block_after_many_addresses_sees_all_of_them() -> None:
    spaces = [Space(pool("p", "10.0.0.0/24", "10.0.2.0/24"))]
    for number in range(130):
        ask(spaces, f"h{number}")
    assert told(ask(spaces, "block", length=25)) == "p 10.0.2.0/25"
    assert told(ask(spaces, "small", length=31)) == "p 10.0.0.130/31"
    assert len(grants_of(spaces[0])) == 132


def test_a_quota_refuses_what_is_new_before_anything_else_and_never_what_is_held() -> None:
    spaces = [Space(pool("p", "10.0.0.0/30", reserved={"mine": "10.0.0.3/32"}))]
    full, room = Quota(2, 2), Quota(2, 1)
    assert told(decide(Claim("a", quota=full), spaces)) == "QuotaExceeded"
    assert told(decide(Claim("a", name="mine", quota=full), spaces)) == "QuotaExceeded"
    assert told(decide(Claim("a", pin=parse_block("10.9.9.9"), quota=full), spaces)) == "QuotaExceeded"
    assert told(decide(Claim("a", quota=room), spaces)) == "p 10.0.0.0/32"
    ask(spaces, "a")
    assert told(decide(Claim("a", quota=full), spaces)) == "keep p 10.0.0.0/32"
