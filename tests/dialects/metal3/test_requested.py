"""Contract 6.5: a specific address, asked for by the annotation `ipAddress`."""

from __future__ import annotations

import pytest
from tests.support.metal3 import CAPI_CLAIM, SIX, SOON, A, World, capi_claim, pool

from berth.dialects.metal3 import kinds

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_a_requested_address_is_given(world: World) -> None:
    """M-085."""
    await world.create(pool("pool", A))
    assert (await world.ask("c", wants="10.0.0.12"))["spec"]["address"] == "10.0.0.12"


async def test_a_taken_one_is_told_and_given_when_it_comes_free(world: World) -> None:
    """M-086."""
    await world.create(pool("pool", A))
    await world.ask("first", wants="10.0.0.12")
    assert await world.refused("second", wants="10.0.0.12") == "Requested IP not available"
    await world.remove(kinds.CLAIM, "first")
    assert (await world.address_of("second", SOON))["spec"]["address"] == "10.0.0.12"
    assert "errorMessage" not in (await world.get(kinds.CLAIM, "second"))["status"]


async def test_one_reserved_for_another_name_is_not_available(world: World) -> None:
    """M-087."""
    await world.create(pool("pool", {**A, "preAllocations": {"v": "10.0.0.12"}}))
    assert await world.refused("c", wants="10.0.0.12") == "Requested IP not available"


async def test_one_outside_the_pools_is_told_in_upstreams_words(world: World) -> None:
    """M-088: the text is kept, clients match it; growing the pool helps."""
    await world.create(pool("pool", A))
    assert await world.refused("c", wants="10.9.9.9") == "Exhausted IP Pools"
    entries = [*A["pools"], {"subnet": "10.9.9.0/24"}]
    await world.edit(kinds.POOL, "pool", {"spec": {"pools": entries}})
    assert (await world.address_of("c", SOON))["spec"]["address"] == "10.9.9.9"


async def test_a_request_against_ones_own_reservation_is_a_conflict(world: World) -> None:
    """M-089."""
    await world.create(pool("pool", {**A, "preAllocations": {"c": "10.0.0.10"}}))
    said = await world.refused("c", wants="10.0.0.11")
    assert said == "PreAllocation and requested ip address are conflicting"


async def test_a_request_that_agrees_with_the_reservation_is_served(world: World) -> None:
    """M-090."""
    await world.create(pool("pool", {**A, "preAllocations": {"c": "10.0.0.11"}}))
    assert (await world.ask("c", wants="10.0.0.11"))["spec"]["address"] == "10.0.0.11"


async def test_a_request_may_be_spelled_in_any_way(world: World) -> None:
    """M-091."""
    await world.create(pool("pool", SIX))
    assert (await world.ask("c", wants="2001:DB8:0::5"))["spec"]["address"] == "2001:db8::5"


async def test_a_later_change_of_the_annotation_moves_nothing(world: World) -> None:
    """M-092."""
    await world.create(pool("pool", A))
    await world.ask("c", wants="10.0.0.10")
    await world.annotate(kinds.CLAIM, "c", "ipAddress", "10.0.0.11")
    await world.passed()
    assert (await world.address_of("c"))["spec"]["address"] == "10.0.0.10"
    assert [a["spec"]["address"] for a in await world.list(kinds.ADDRESS)].count("10.0.0.11") == 0


async def test_a_random_pool_gives_the_requested_address(world: World) -> None:
    """M-093."""
    await world.create(pool("pool", {**A, "allocationStrategy": "random"}))
    assert (await world.ask("c", wants="10.0.0.12"))["spec"]["address"] == "10.0.0.12"


async def test_an_empty_annotation_asks_for_nothing(world: World) -> None:
    """M-037."""
    await world.create(pool("pool", A))
    assert (await world.ask("c", wants=""))["spec"]["address"] == "10.0.0.10"


async def test_a_cluster_api_claim_may_ask_too_and_is_told_what_is_wrong(world: World) -> None:
    """M-094: no webhook of ours looks at it; correcting the annotation is enough."""
    await world.create(pool("pool", A))
    await world.create(capi_claim("c", annotations={"ipAddress": "foo"}))
    text = 'Invalid ipAddress annotation "foo": not a valid IP address'
    assert await world.ready_of("c") == ("False", "AllocationFailed", text)
    await world.annotate(CAPI_CLAIM, "c", "ipAddress", "10.0.0.11")
    assert (await world.capi_address_of("c", SOON))["spec"]["address"] == "10.0.0.11"
