"""The memory of a pool: taking, releasing, adopting what is found, and pools that change under leases."""

from __future__ import annotations

import pytest

from berth.errors import Taken
from berth.leasing import UNKNOWN_HOLDER, Claim, Grant, Lease, Pool, Space, Strategy, Usage, decide
from berth.net import Family, Range, parse_block, parse_range

STRATEGIES = pytest.mark.parametrize("strategy", list(Strategy))


def pool(*ranges: str, without: str = "", strategy: Strategy = Strategy.FIRST, **reserved: str) -> Pool:
    return Pool(
        "p",
        tuple(map(parse_range, ranges)),
        tuple(map(parse_range, without.split())),
        {key: parse_block(text) for key, text in reserved.items()},
        strategy,
    )


def grant(space: Space, holder: str, length: int | None = None) -> str:
    decision = decide(Claim(holder, length=length), (space,))
    if not isinstance(decision, Grant):
        return "nothing"
    decision.take()
    return str(decision.block)


@STRATEGIES
def test_taking_what_one_has_succeeds_and_changes_nothing(strategy: Strategy) -> None:
    space = Space(pool("10.0.0.0/24", strategy=strategy))
    block = parse_block("10.0.0.64/26")
    space.take(block, "me")
    before = space.usage()
    space.take(block, "me")
    assert space.usage() == before
    assert list(space.leases()) == [Lease(block, "me")]


@STRATEGIES
@pytest.mark.parametrize("wish", ["10.0.0.64/26", "10.0.0.70", "10.0.0.0/24", "10.0.0.0/16"])
def test_taking_what_overlaps_another_lease_is_refused_and_names_the_holder(
    strategy: Strategy, wish: str
) -> None:
    space = Space(pool("10.0.0.0/24", strategy=strategy))
    space.take(parse_block("10.0.0.64/26"), "other")
    before = space.usage()
    with pytest.raises(Taken) as refused:
        space.take(parse_block(wish), "me")
    assert refused.value.holder == "other"
    assert space.usage() == before
    assert space.leases_of("me") == ()
    assert space.holder_of(parse_block(wish)) == "other"


@STRATEGIES
def test_releasing_what_is_free_or_anothers_changes_nothing(strategy: Strategy) -> None:
    space = Space(pool("10.0.0.0/24", strategy=strategy))
    space.take(parse_block("10.0.0.64/26"), "other")
    before = space.usage()
    assert not space.release(parse_block("10.0.0.64/26"), "me")
    assert not space.release(parse_block("10.0.0.64"))
    assert not space.release(parse_block("10.0.0.1"))
    assert not space.release(parse_block("10.9.0.1"))
    assert not space.release(parse_block("fd00::1"))
    assert space.usage() == before
    assert space.release(parse_block("10.0.0.64/26"), "other")
    assert space.usage() == Usage(total=256, free=256)


@STRATEGIES
def test_what_is_found_taken_is_adopted_wherever_it_lies(strategy: Strategy) -> None:
    found = [
        (parse_block("10.0.0.1"), "inside"),
        (parse_block("10.9.9.9"), "outside"),
        (parse_block("fd00::/64"), "other family"),
        (parse_block("10.0.0.4"), "excluded"),
        (parse_block("10.0.0.6"), "reserved"),
        (parse_block("10.0.0.8/28"), "over the edge"),
    ]
    space = Space(pool("10.0.0.0-10.0.0.9", without="10.0.0.4", db="10.0.0.6", strategy=strategy), found)
    # The /28 is 10.0.0.0 to .15: it covers all of the pool, what is excluded and reserved, and six more.
    assert sorted(space.leases()) == sorted(Lease(*lease) for lease in found)
    usage = space.usage()
    assert (usage.total, usage.used, usage.free, usage.reserved) == (9, 9, 0, 0)
    assert usage.outside == 1 + 2**64 + 1 + 6
    for block, holder in found:
        assert space.release(block, holder)
    assert space.usage() == Usage(total=9, free=8, reserved=1)


@STRATEGIES
def test_a_block_over_the_edge_of_the_pool_bars_what_it_covers(strategy: Strategy) -> None:
    found = [(parse_block("10.0.0.0/29"), "over the edge"), (parse_block("10.0.0.8/30"), "inside")]
    space = Space(pool("10.0.0.6-10.0.0.15", strategy=strategy), found)
    assert space.usage() == Usage(total=10, used=6, free=4, outside=6)
    granted = {grant(space, f"h{number}") for number in range(5)}
    assert granted == {"10.0.0.12/32", "10.0.0.13/32", "10.0.0.14/32", "10.0.0.15/32", "nothing"}


@STRATEGIES
def test_what_two_leases_claim_becomes_free_with_the_last_of_them(strategy: Strategy) -> None:
    one, two, around = parse_block("10.0.0.1"), parse_block("10.0.0.1"), parse_block("10.0.0.0/30")
    space = Space(pool("10.0.0.0/29", strategy=strategy), [(one, "one"), (two, "two"), (around, "around")])
    assert space.usage() == Usage(total=8, used=4, free=4)
    assert space.leases_of("two") == (two,)
    assert space.release(one, "one")
    assert not space.is_free(one)
    assert space.holder_of(one) in ("two", "around")
    assert space.release(around, "around")
    assert space.usage() == Usage(total=8, used=1, free=7)
    assert not space.release(around)
    assert space.release(two, "two")
    assert space.usage() == Usage(total=8, free=8)
    assert grant(space, "me", length=29) == "10.0.0.0/29"


def test_a_lease_of_someone_unknown_becomes_the_real_holders_or_goes_with_its_release() -> None:
    space = Space(pool("10.0.0.0/29"))
    exact, inside = parse_block("10.0.0.1"), parse_block("10.0.0.2")
    space.adopt(exact, UNKNOWN_HOLDER)
    space.adopt(inside, UNKNOWN_HOLDER)
    assert grant(space, "me", length=30) == "10.0.0.4/30"
    space.take(exact, "real")
    assert space.holder_of(exact) == "real"
    space.adopt(parse_block("10.0.0.2/31"), "larger than we knew")
    assert space.leases_of(UNKNOWN_HOLDER) == ()
    assert space.release(parse_block("10.0.0.2/31"), "larger than we knew")
    assert space.is_free(inside)

    space.adopt(inside, UNKNOWN_HOLDER)
    assert space.release(inside, "whoever it was")
    assert space.is_free(inside)


def test_forgetting_someone_takes_nothing_from_those_who_are_known() -> None:
    one, two, around = parse_block("10.0.0.1"), parse_block("10.0.0.2"), parse_block("10.0.0.0/30")
    space = Space(pool("10.0.0.0/29"), [(one, "x"), (one, UNKNOWN_HOLDER), (two, "y"), (two, UNKNOWN_HOLDER)])
    assert space.release(two, "y")
    space.adopt(around, "c")
    assert sorted(space.leases()) == [(around, "c"), (one, "x")]


def test_whoever_is_found_beside_a_known_holder_is_who_someone_was() -> None:
    one = parse_block("10.0.0.1")
    space = Space(pool("10.0.0.0/29"), [(one, "x"), (one, UNKNOWN_HOLDER), (one, "y")])
    assert sorted(space.leases()) == [(one, "x"), (one, "y")]
    assert space.release(one, "x")
    assert space.release(one, "y")
    assert list(space.leases()) == []
    assert space.is_free(one)


@STRATEGIES
@pytest.mark.parametrize("in_place", [True, False])
def test_an_edited_pool_gives_what_is_new_never_what_was_removed_and_keeps_all_leases(
    strategy: Strategy, in_place: bool
) -> None:
    space = Space(pool("10.0.0.0/30", strategy=strategy))
    granted = [grant(space, f"h{number}") for number in range(5)]
    assert granted[4] == "nothing"

    larger = pool("10.0.0.0/29", without="10.0.0.5", strategy=strategy)
    if in_place:
        space.edit(larger)
    else:
        space = Space(larger, space.leases())
    assert {grant(space, f"new {number}") for number in range(4)} == {
        "10.0.0.4/32",
        "10.0.0.6/32",
        "10.0.0.7/32",
        "nothing",
    }

    space.edit(pool("10.0.0.4/30", strategy=strategy))
    assert space.usage() == Usage(total=4, used=3, free=1, outside=4)
    assert grant(space, "another") == "10.0.0.5/32"
    for text in granted[:4]:
        assert space.release(parse_block(text))
    assert grant(space, "too late") == "nothing"
    assert space.usage() == Usage(total=4, used=4)


def test_an_edit_in_place_reaches_a_grant_that_is_being_committed() -> None:
    space = Space(pool("10.0.0.0/30"))
    decision = decide(Claim("me"), (space,))
    assert isinstance(decision, Grant)
    decision.take()
    space.edit(pool("10.0.0.0/29"))
    assert decision.space.release(decision.block, "me")
    assert space.usage() == Usage(total=8, free=8)


def test_an_edit_to_the_same_pool_costs_nothing() -> None:
    space = Space(pool("10.0.0.0/30"))
    grounds = space.grounds
    space.edit(pool("10.0.0.0/30"))
    assert space.grounds is grounds


def test_cursors_survive_an_edit_and_end_with_the_round_robin() -> None:
    space = Space(pool("10.0.0.0/24", strategy=Strategy.ROUND_ROBIN))
    grant(space, "a", length=28)
    assert space.release(parse_block("10.0.0.0/28"))
    space.edit(pool("10.0.0.0/23", strategy=Strategy.ROUND_ROBIN))
    assert grant(space, "b", length=28) == "10.0.0.16/28"
    space.edit(pool("10.0.0.0/23", strategy=Strategy.BEST_FIT))
    assert space.cursors == {}
    assert grant(space, "c", length=28) == "10.0.0.0/28"


@STRATEGIES
def test_a_pool_of_all_addresses_there_are_is_counted_exactly(strategy: Strategy) -> None:
    everything = tuple(Range(family, 0, family.top) for family in (Family.V6, Family.V4))
    space = Space(Pool("p", everything, reservations={"db": parse_block("::1")}, strategy=strategy))
    assert space.usage() == Usage(total=2**128 + 2**32, free=2**128 + 2**32 - 1, reserved=1)
    space.take(parse_block("8000::/1"), "half of it")
    space.take(parse_block("::1"), "db")
    assert space.usage() == Usage(total=2**128 + 2**32, used=2**127 + 1, free=2**127 + 2**32 - 1)
    assert space.release(parse_block("8000::/1"))
    assert space.release(parse_block("::1"))
    assert space.usage() == Usage(total=2**128 + 2**32, free=2**128 + 2**32 - 1, reserved=1)


def test_usages_add_up() -> None:
    assert Usage(5, 1, 3, 1, 2) + Usage(1, 1) == Usage(6, 2, 3, 1, 2)


@STRATEGIES
def test_a_holder_of_many_blocks_loses_only_the_one_it_releases(strategy: Strategy) -> None:
    space = Space(pool("10.0.0.0/24", strategy=strategy))
    blocks = [parse_block(f"10.0.0.{number}") for number in range(5)]
    for block in blocks:
        space.take(block, "me")
    assert space.leases_of("me") == tuple(blocks)
    for gone, block in enumerate(blocks, 1):
        assert space.release(block, "me")
        assert space.leases_of("me") == tuple(blocks[gone:])


def test_a_pool_whose_every_address_is_excluded_is_empty() -> None:
    space = Space(pool("10.0.0.0/30", without="10.0.0.0/24"))
    assert space.usage() == Usage()
    assert grant(space, "me") == "nothing"
