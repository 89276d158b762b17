"""Contract 6.4: `preAllocations`, by claim name and by value, whatever the spelling."""

from __future__ import annotations

import pytest
from tests.support.metal3 import SEED, SIX, SOON, A, B, World, claim, cluster_object, pool, ranged

from berth.dialects.metal3 import kinds

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

EXHAUSTED = "Exhausted IP Pools"


def reserving(spec: dict[str, object] = A, **reservations: str) -> dict[str, object]:
    return {**spec, "preAllocations": reservations}


async def test_the_named_claim_gets_its_address(world: World) -> None:
    """M-075: with the prefix and gateway of the entry that contains it."""
    await world.create(cluster_object("cluster1"), pool("pool", SEED))
    spec = (await world.ask("claim1"))["spec"]
    assert (spec["address"], spec["prefix"], spec["gateway"]) == ("192.168.0.12", 25, "192.168.0.1")


async def test_others_do_not_get_it(world: World) -> None:
    """M-076."""
    await world.create(pool("pool", reserving(v="10.0.0.10")))
    assert await world.ask_text("ordinary") == ["10.0.0.11"]


async def test_the_entry_that_contains_it_decides_what_goes_with_it(world: World) -> None:
    """M-077."""
    await world.create(pool("pool", reserving(B, v="10.0.2.15")))
    spec = (await world.ask("v"))["spec"]
    assert (spec["prefix"], spec["gateway"], spec["dnsServers"]) == (16, "10.0.2.1", ["1.1.1.1"])


async def test_a_random_pool_gives_exactly_the_reserved_address(world: World) -> None:
    """M-078."""
    spec = ranged({"subnet": "10.0.0.0/16"}, allocationStrategy="random", preAllocations={"v": "10.0.7.7"})
    await world.create(pool("pool", spec))
    assert await world.ask_text("v") == ["10.0.7.7"]


async def test_a_reservation_may_be_spelled_in_any_way(world: World) -> None:
    """M-079: the claim gets it in canonical text."""
    await world.create(pool("pool", reserving(SIX, r="2001:db8::0005")))
    assert await world.ask_text("r") == ["2001:db8::5"]


async def test_a_reservation_in_any_spelling_is_kept_from_others(world: World) -> None:
    """M-080: upstream gives it away; here ::5 is passed over."""
    await world.create(pool("pool", reserving(SIX, r="2001:DB8:0:0::0005")))
    got = await world.ask_text(*(f"c{i}" for i in range(5)))
    assert got == ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8::4", "2001:db8::6"]


async def test_a_released_reservation_stays_reserved(world: World) -> None:
    """M-081."""
    await world.create(pool("pool", reserving(v="10.0.0.11")))
    await world.ask_text("v", "c1", "c2")
    await world.remove(kinds.CLAIM, "v")
    assert await world.refused("c3") == EXHAUSTED
    assert await world.ask_text("v") == ["10.0.0.11"]


async def test_a_reservation_that_is_taken_is_told_and_served_later(world: World) -> None:
    """M-082: b gets an error, others are served, of both APIs; when a goes, b is served untouched."""
    await world.create(pool("pool", A))
    assert await world.ask_text("a") == ["10.0.0.10"]
    await world.edit(kinds.POOL, "pool", {"spec": {"preAllocations": {"b": "10.0.0.10"}}})
    assert await world.refused("b") == "Pre-allocated IP not available"
    assert await world.ask_text("c") == ["10.0.0.11"]
    assert (await world.ask_capi("d"))["spec"]["address"] == "10.0.0.12"
    await world.remove(kinds.CLAIM, "a")
    assert (await world.address_of("b", SOON))["spec"]["address"] == "10.0.0.10"


async def test_a_reservation_taken_by_a_claim_of_the_other_api_is_no_double(world: World) -> None:
    """M-083: b gets an error, not a's address."""
    await world.create(pool("pool", A))
    assert (await world.ask_capi("a"))["spec"]["address"] == "10.0.0.10"
    await world.edit(kinds.POOL, "pool", {"spec": {"preAllocations": {"b": "10.0.0.10"}}})
    assert await world.refused("b") == "Pre-allocated IP not available"
    assert await world.list(kinds.ADDRESS) == []


async def test_the_name_counts_whichever_api_the_claim_is_of(world: World) -> None:
    """M-084."""
    await world.create(pool("pool", reserving(n="10.0.0.11")))
    assert (await world.ask_capi("n"))["spec"]["address"] == "10.0.0.11"


async def test_a_new_reservation_serves_the_claim_that_waits_for_it(world: World) -> None:
    """A pool edit wakes whoever waits."""
    await world.create(pool("pool", reserving(x="10.0.0.10", y="10.0.0.11", z="10.0.0.12")))
    await world.create(claim("late"))
    assert await world.error_of("late") == EXHAUSTED
    await world.edit(kinds.POOL, "pool", {"spec": {"preAllocations": {"z": None, "late": "10.0.0.12"}}})
    assert (await world.address_of("late", SOON))["spec"]["address"] == "10.0.0.12"
