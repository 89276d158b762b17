"""Contract 6.8, second half: objects that are there before us, after a move or made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.metal3 import (
    CAPI_ADDRESS,
    CLUSTER,
    SOON,
    A,
    World,
    address,
    capi_address,
    capi_claim,
    claim,
    cluster_object,
    pool,
)

from berth.dialects.metal3 import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def moved(world: World) -> dict[str, Any]:
    """What a move leaves: a paused cluster, and what hangs on it, each without a status."""
    owner = await world.create(cluster_object("cluster1", paused=True))
    mine = [{**meta.owner_reference(owner)}]
    held: dict[str, Any] = {"finalizers": [kinds.CLAIM_FINALIZER], "ownerReferences": mine}
    spec = {**A, "clusterName": "cluster1"}
    await world.create(pool("pool", spec, finalizers=[kinds.POOL_FINALIZER], ownerReferences=mine))
    one = await world.create(claim("c1", **held))
    held["finalizers"] = [kinds.CAPI_CLAIM_FINALIZER]
    two = await world.create(capi_claim("m", **held))
    the_pool = meta.owner_reference(await world.get(kinds.POOL, "pool"))
    await world.create(
        address(
            "a-10-0-0-12",
            "10.0.0.12",
            "c1",
            finalizers=[kinds.ADDRESS_FINALIZER],
            ownerReferences=[the_pool, meta.owner_reference(one)],
        ),
        capi_address(
            "a-10-0-0-11",
            "10.0.0.11",
            "m",
            finalizers=[kinds.CAPI_ADDRESS_FINALIZER],
            ownerReferences=[the_pool, meta.owner_reference(two)],
        ),
    )
    return owner


async def test_after_a_move_every_claim_has_the_address_it_had(world: World) -> None:
    """M-123, M-124, M-125: no object is made or changed; indexes and status rebuilt; a newcomer fits in."""
    await moved(world)
    await world.passed()
    before = await objects(world)
    assert "status" not in await world.get(kinds.CLAIM, "c1")
    await world.edit(CLUSTER, "cluster1", {"spec": {"paused": False}})
    assert (await world.address_of("c1", SOON))["spec"]["address"] == "10.0.0.12"
    assert (await world.capi_address_of("m", SOON))["spec"]["address"] == "10.0.0.11"
    assert await world.ready_of("m") == ("True", "AddressAllocated", "")
    assert await objects(world) == before
    await world.shows({"c1": "10.0.0.12", "m": "10.0.0.11"})
    assert await world.ask_text("c2") == ["10.0.0.10"]


async def objects(world: World) -> dict[str, str]:
    found = [*await world.list(kinds.ADDRESS), *await world.list(CAPI_ADDRESS)]
    return {
        f"{address['apiVersion']} {meta.ref(address)}": meta.resource_version(address)
        for address in found
        if not address["metadata"]["name"].startswith("passed")
    }


async def test_a_hand_made_address_is_respected_and_adopted(world: World) -> None:
    """M-126: others go around it; the claim it names gets it."""
    await world.create(address("a-10-0-0-10", "10.0.0.10", "ext"), pool("pool", A))
    assert await world.ask_text("ordinary", "ext") == ["10.0.0.11", "10.0.0.10"]
    await world.shows({"ext": "10.0.0.10", "ordinary": "10.0.0.11"})


async def test_a_hand_made_address_may_have_any_name_and_spelling(world: World) -> None:
    """M-127: the claim names the object found, not one that does not exist."""
    spec = {
        **A,
        "pools": [{"start": "2001:db8::1", "end": "2001:db8::3"}],
        "prefix": 64,
        "gateway": "2001:db8::f",
    }
    await world.create(address("foo", "2001:0DB8::0001", "ext"), pool("pool", spec))
    await world.create(claim("ext"))
    assert (await world.address_of("ext"))["metadata"]["name"] == "foo"
    assert await world.ask_text("next") == ["2001:db8::2"]


async def test_of_two_objects_for_one_address_one_may_go(world: World) -> None:
    """I1: the address is taken as long as one of them says so, whatever its name."""
    await world.create(address("foo", "10.0.0.10", "ext"), pool("pool", A))
    assert (await world.ask("ext"))["metadata"]["name"] == "foo"
    await world.create(address("a-10-0-0-10", "10.0.0.10", "ext"))
    await world.passed()
    await world.remove(kinds.ADDRESS, "a-10-0-0-10")
    await world.passed()
    assert await world.ask_text("next") == ["10.0.0.11"]


async def test_a_hand_made_address_for_a_claim_that_waits_serves_it(world: World) -> None:
    """Seen at once: upstream watches no addresses."""
    await world.create(pool("pool", {**A, "pools": []}))
    assert await world.refused("ext") == "Exhausted IP Pools"
    await world.create(address("foo", "10.0.0.77", "ext"))
    assert (await world.address_of("ext", SOON))["spec"]["address"] == "10.0.0.77"


async def test_an_address_outside_the_pool_is_counted_and_kept(world: World) -> None:
    """X-24: that the pool can still be edited is shown where admission is (test_admission.py)."""
    await world.create(address("a-10-9-9-9", "10.9.9.9", "ext"), pool("pool", A))
    await world.ask("ext")
    await world.shows({"ext": "10.9.9.9"})
    usage = (await world.get(kinds.POOL, "pool"))["status"]["ipAddresses"]
    assert (usage["used"], usage["free"], usage["outOfRange"]) == (0, 3, 1)
