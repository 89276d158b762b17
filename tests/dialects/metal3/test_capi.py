"""Contract 6.9: Cluster API's IPAddressClaims on a Metal3 pool."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.metal3 import (
    CAPI_ADDRESS,
    CAPI_CLAIM,
    SOON,
    A,
    World,
    capi_address,
    capi_claim,
    claim,
    pool,
    ranged,
)

from berth.dialects.metal3 import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_a_claim_gets_an_address_object_of_its_own_api(world: World) -> None:
    """M-129: name, references, finalizers, indexes; and X-31, the owner flags the contract demands."""
    await world.create(pool("pool", A))
    served = await world.ask_capi("m", labels={"x": "1"})
    assert served["spec"] == {
        "address": "10.0.0.10",
        "prefix": 24,
        "gateway": "10.0.0.1",
        "claimRef": {"name": "m"},
        "poolRef": {"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "pool"},
    }
    about = served["metadata"]
    assert (about["name"], about["labels"]) == ("a-10-0-0-10", {"x": "1"})
    assert about["finalizers"] == ["ipam.metal3.io/ipaddress"]
    owners = {o["kind"]: (o.get("controller"), o.get("blockOwnerDeletion")) for o in about["ownerReferences"]}
    assert owners == {"IPPool": (False, True), "IPAddressClaim": (True, True)}
    stored = await world.get(CAPI_CLAIM, "m")
    assert stored["status"]["addressRef"] == {"name": "a-10-0-0-10"}
    assert meta.finalizers(stored) == ["ipam.metal3.io/ipaddressclaim"]
    await world.shows({"m": "10.0.0.10"})


async def test_success_is_a_ready_condition(world: World) -> None:
    """M-130: upstream's is refused by the schema; conditions of others are kept."""
    await world.create(pool("pool", A), capi_claim("m"))
    await world.capi_address_of("m")
    assert await world.ready_of("m") == ("True", "AddressAllocated", "")
    stored = await world.get(CAPI_CLAIM, "m")
    ready = meta.condition(stored, "Ready")
    assert ready is not None
    assert ready["observedGeneration"] == stored["metadata"]["generation"]


async def test_conditions_of_others_are_kept(world: World) -> None:
    """X-28: only Ready is ours."""
    theirs = {
        "type": "Theirs",
        "status": "True",
        "reason": "AllocationFailed",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await world.create(capi_claim("m"))
    await world.ready_of("m")
    await world.edit(CAPI_CLAIM, "m", {"status": {"conditions": [theirs]}}, "status")
    await world.create(pool("pool", A))
    await world.capi_address_of("m")
    conditions = (await world.get(CAPI_CLAIM, "m"))["status"]["conditions"]
    assert conditions[0] == theirs
    assert [c["type"] for c in conditions] == ["Theirs", "Ready"]


async def test_both_apis_draw_from_the_same_addresses(world: World) -> None:
    """M-131."""
    await world.create(pool("pool", A))
    assert await world.ask_text("x") == ["10.0.0.10"]
    assert (await world.ask_capi("y"))["spec"]["address"] == "10.0.0.11"


async def test_one_name_in_both_apis_is_two_claims(world: World) -> None:
    """M-132: two addresses, each in its own API; `indexes` keeps the bare name for Metal3's."""
    await world.create(pool("pool", A))
    assert await world.ask_text("n") == ["10.0.0.10"]
    assert (await world.ask_capi("n"))["spec"]["address"] == "10.0.0.11"
    await world.shows({"n": "10.0.0.10", "n.ipaddressclaim": "10.0.0.11"})
    await world.remove(CAPI_CLAIM, "n")
    assert (await world.address_of("n"))["spec"]["address"] == "10.0.0.10"


async def test_claims_of_both_apis_made_together_get_different_addresses(world: World) -> None:
    """M-133: forty at once, twenty of each."""
    await world.create(pool("pool", ranged({"start": "10.0.0.1", "end": "10.0.0.40"})))
    names = [f"c{i}" for i in range(20)]
    await asyncio.gather(*(world.create(make(name)) for name in names for make in (claim, capi_claim)))
    mine = [(await world.address_of(name))["spec"]["address"] for name in names]
    theirs = [(await world.capi_address_of(name))["spec"]["address"] for name in names]
    assert len({*mine, *theirs}) == 40


async def test_an_exhausted_pool_is_told_and_over_when_space_comes(world: World) -> None:
    """M-134."""
    await world.create(pool("pool", A))
    await world.ask_text("a", "b", "c")
    await world.create(capi_claim("m"))
    assert await world.ready_of("m") == ("False", "PoolExhausted", "Exhausted IP Pools")
    await world.delete(kinds.CLAIM, "b")
    assert (await world.capi_address_of("m", SOON))["spec"]["address"] == "10.0.0.11"
    assert await world.ready_of("m") == ("True", "AddressAllocated", "")


@pytest.mark.parametrize(
    ("group", "kind"),
    [("ipam.cluster.x-k8s.io", "InClusterIPPool"), ("ipam.metal3.io", "Other"), ("example.org", "IPPool")],
)
async def test_claims_of_foreign_pools_are_not_touched(world: World, group: str, kind: str) -> None:
    """M-135: the pool's name alone is nothing; no finalizer, no status, no address."""
    await world.create(pool("pool", A))
    foreign = capi_claim("m")
    foreign["spec"]["poolRef"] = {"apiGroup": group, "kind": kind, "name": "pool"}
    stored = await world.create(foreign)
    await world.ask_capi("ours")
    await world.passed()
    assert await world.get(CAPI_CLAIM, "m") == stored
    await world.remove(CAPI_CLAIM, "m", SOON)


async def test_addresses_of_foreign_pools_occupy_nothing(world: World) -> None:
    """X-03: they are of another provider's pool that happens to have the same name."""
    await world.create(pool("pool", A))
    foreign = {
        "apiVersion": CAPI_ADDRESS.api_version,
        "kind": "IPAddress",
        "metadata": {"name": "a-10-0-0-10"},
        "spec": {
            "address": "10.0.0.10",
            "prefix": 24,
            "claimRef": {"name": "theirs"},
            "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "pool"},
        },
    }
    await world.create(foreign)
    assert await world.ask_text("mine") == ["10.0.0.10"]
    # In its own API the name is in the way, so the next one is taken.
    assert (await world.ask_capi("m"))["spec"]["address"] == "10.0.0.11"
    await world.shows({"mine": "10.0.0.10", "m": "10.0.0.11"})


async def test_without_a_prefix_the_address_says_0(world: World) -> None:
    """M-136: Cluster API requires the field."""
    await world.create(pool("pool", ranged({"start": "10.0.0.1", "end": "10.0.0.2"})))
    spec = (await world.ask_capi("m"))["spec"]
    assert spec["prefix"] == 0
    assert "gateway" not in spec


async def test_who_was_served_is_not_judged_by_a_later_edit_of_the_pool(world: World) -> None:
    """X-26: a prefix too long for IPv4 is told to newcomers; the address given stays given, and counted."""
    await world.create(pool("pool", A))
    await world.ask_capi("m")
    before = (await world.get(CAPI_CLAIM, "m"))["status"]
    await world.edit(kinds.POOL, "pool", {"spec": {"prefix": 64}})
    await world.create(capi_claim("late"))
    assert (await world.ready_of("late"))[1] == "AllocationFailed"
    await world.edit(CAPI_CLAIM, "m", {"metadata": {"labels": {"touched": "yes"}}})
    await world.passed()
    assert (await world.get(CAPI_CLAIM, "m"))["status"] == before
    assert await world.ask_text("next") == ["10.0.0.11"]


async def test_an_address_object_nobody_can_read_is_in_nobodys_way(world: World) -> None:
    """Cluster API takes a zone; its claim is served, and both objects go with the claim."""
    await world.create(capi_address("odd", "fe80::1%eth0", "m"), pool("pool", A))
    assert (await world.ask_capi("m"))["spec"]["address"] == "10.0.0.10"
    await world.remove(CAPI_CLAIM, "m")
    await world.gone(CAPI_ADDRESS, "odd")
    await world.remove(kinds.POOL, "pool")


async def test_deleting_a_claim_gives_everything_back(world: World) -> None:
    """M-138."""
    await world.create(pool("pool", A))
    await world.ask_capi("m")
    await world.remove(CAPI_CLAIM, "m")
    await world.gone(CAPI_ADDRESS, "a-10-0-0-10", SOON)
    await world.shows({})


async def test_a_claim_whose_pool_is_missing_says_so(world: World) -> None:
    """PoolNotReady is the reason Cluster API reserves for it; no finalizer holds the claim meanwhile."""
    await world.create(capi_claim("m", "nowhere"))
    text = f"IPPool {world.namespace}/nowhere not found"
    assert await world.ready_of("m") == ("False", "PoolNotReady", text)
    assert meta.finalizers(await world.get(CAPI_CLAIM, "m")) == []
