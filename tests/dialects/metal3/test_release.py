"""Contract 6.7: giving an address back, and deleting pools."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from tests.support.metal3 import (
    CAPI_ADDRESS,
    CAPI_CLAIM,
    SOON,
    A,
    World,
    address,
    capi_claim,
    claim,
    pool,
    waits,
)
from tests.support.operator import eventually

from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.resource import Resource
from berth.kube.watch import reflect

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

OTHERS = "metal3data.infrastructure.cluster.x-k8s.io"


async def test_deleting_a_claim_gives_everything_back(world: World) -> None:
    """M-103."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    await world.shows({"c1": "10.0.0.10"})
    await world.remove(kinds.CLAIM, "c1")
    await world.gone(kinds.ADDRESS, "a-10-0-0-10", SOON)
    await world.shows({})


async def test_another_controllers_finalizer_says_still_in_use(world: World) -> None:
    """M-104: claim and address stay until it goes."""
    await world.create(pool("pool", A))
    await world.ask("c1", finalizers=[OTHERS])
    await world.delete(kinds.CLAIM, "c1")
    await world.passed()
    assert not meta.is_deleting(await world.get(kinds.ADDRESS, "a-10-0-0-10"))
    assert meta.finalizers(await world.get(kinds.CLAIM, "c1")) == [OTHERS, kinds.CLAIM_FINALIZER]
    await world.edit(kinds.CLAIM, "c1", {"metadata": {"finalizers": [kinds.CLAIM_FINALIZER]}})
    await world.gone(kinds.CLAIM, "c1", SOON)
    await world.gone(kinds.ADDRESS, "a-10-0-0-10", SOON)


@pytest.mark.parametrize("resource", [kinds.CLAIM, CAPI_CLAIM], ids=["metal3", "capi"])
async def test_the_garbage_collectors_finalizer_does_not(world: World, resource: Resource) -> None:
    """Claim and pool deleted in the foreground: the collector waits for the address, and that for us."""
    await world.create(pool("pool", A))
    await (world.ask if resource is kinds.CLAIM else world.ask_capi)("c1")
    both = ((resource, "c1"), (kinds.POOL, "pool"))
    for one, name in both:
        await world.client.delete(one, name, world.namespace, propagation="Foreground")
    await world.gone(kinds.ADDRESS if resource is kinds.CLAIM else CAPI_ADDRESS, "a-10-0-0-10")
    for one, name in both:
        await eventually(partial(is_left_to_the_collector, world, one, name))


async def is_left_to_the_collector(world: World, resource: Resource, name: str) -> bool:
    return meta.finalizers(await world.get(resource, name)) == ["foregroundDeletion"]


async def test_an_address_deleted_by_hand_stays_with_its_claim(world: World) -> None:
    """M-105: marked as going, held by its finalizer; claim and address unchanged until the claim goes."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    before = await world.get(kinds.CLAIM, "c1")
    await world.delete(kinds.ADDRESS, "a-10-0-0-10")
    assert await world.ask_text("c2") == ["10.0.0.11"]
    await world.edit(kinds.CLAIM, "c1", {"metadata": {"labels": {"touched": "yes"}}})
    await world.passed()
    assert meta.is_deleting(await world.get(kinds.ADDRESS, "a-10-0-0-10"))
    assert (await world.get(kinds.CLAIM, "c1"))["status"] == before["status"]
    await world.remove(kinds.CLAIM, "c1")
    await world.gone(kinds.ADDRESS, "a-10-0-0-10", SOON)
    assert await world.ask_text("c3") == ["10.0.0.10"]


async def test_a_pool_waits_for_its_addresses(world: World) -> None:
    """M-106, M-031: the request is accepted; the pool goes with its last address, of either API."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    await world.ask_capi("m")
    await world.delete(kinds.POOL, "pool")
    await world.remove(kinds.CLAIM, "c1")
    await world.passed()
    assert meta.is_deleting(await world.get(kinds.POOL, "pool"))
    await world.remove(CAPI_CLAIM, "m")
    await world.gone(kinds.POOL, "pool", SOON)


async def test_unclaimed_reservations_hold_no_pool(world: World) -> None:
    """M-107."""
    await world.create(pool("pool", {**A, "preAllocations": {"v": "10.0.0.10"}}))
    await world.passed()
    await world.remove(kinds.POOL, "pool")


async def test_a_dying_pool_serves_nobody_new(world: World) -> None:
    """M-108: upstream does, from others' reservations even. A claim says why it waits."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    await world.delete(kinds.POOL, "pool")
    await world.create(claim("c2"))
    await world.passed()
    await waits(world, "c2", "PoolDeleting")
    await world.create(capi_claim("m"))
    text = f"IPPool {world.namespace}/pool is being deleted and serves no new claims"
    assert await world.ready_of("m") == ("False", "PoolNotReady", text)
    await world.remove(kinds.CLAIM, "c1")
    await world.gone(kinds.POOL, "pool")
    await world.create(pool("pool", A))
    assert (await world.address_of("c2", SOON))["spec"]["address"] in ("10.0.0.10", "10.0.0.11")


async def test_a_claim_of_a_missing_pool_can_go_at_any_time(world: World) -> None:
    """M-109: nothing holds it."""
    await world.create(claim("c1", "nowhere"))
    await world.passed()
    assert meta.finalizers(await world.get(kinds.CLAIM, "c1")) == []
    await world.delete(kinds.CLAIM, "c1")
    await world.gone(kinds.CLAIM, "c1", SOON)


async def test_claims_deleted_as_soon_as_made_leak_nothing(world: World) -> None:
    """M-110: 100 of them; every address is free again, and the pool can go."""
    await world.create(pool("pool", A))
    await world.ask("first")
    for i in range(100):
        await world.create(claim(f"c{i}"))
        await world.delete(kinds.CLAIM, f"c{i}")
    for i in range(100):
        await world.gone(kinds.CLAIM, f"c{i}")

    async def only_the_first() -> bool:
        assert [a["spec"]["claim"]["name"] for a in await world.list(kinds.ADDRESS)] == ["first"]
        return True

    await eventually(only_the_first)
    assert sorted(await world.ask_text("a", "b")) == ["10.0.0.11", "10.0.0.12"]
    for name in ("first", "a", "b"):
        await world.remove(kinds.CLAIM, name)
    await world.remove(kinds.POOL, "pool")


@pytest.mark.parametrize("resource", [kinds.CLAIM, CAPI_CLAIM], ids=["metal3", "capi"])
async def test_a_claim_is_held_before_its_address_exists(world: World, resource: Resource) -> None:
    """X-06: the revision that brought the finalizer is older than the address object."""
    history = History()
    await world.create(pool("pool", A))
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(reflect(world.client, resource, history, namespace=world.namespace))
        await eventually(history.is_listed)
        served = await (world.ask if resource is kinds.CLAIM else world.ask_capi)("c1")
        await eventually(history.is_held)
        watch.cancel()
    assert history.held_at < int(meta.resource_version(served))


class History:
    """When a claim was first seen with a finalizer."""

    def __init__(self) -> None:
        self.held_at = 0
        self._listed = False

    def replace(self, items: list[dict[str, Any]], resource_version: str) -> None:
        self._listed = True

    reset = replace

    def apply(self, type: str, obj: dict[str, Any]) -> None:
        if meta.finalizers(obj) and not self.held_at:
            self.held_at = int(meta.resource_version(obj))

    async def is_listed(self) -> bool:
        return self._listed

    async def is_held(self) -> bool:
        return self.held_at > 0


async def test_a_foreign_finalizer_on_the_address_keeps_it_occupied(world: World) -> None:
    """M-111: the claim goes, the address comes back when the finalizer does."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    both = [kinds.ADDRESS_FINALIZER, "example.org/wiping"]
    await world.edit(kinds.ADDRESS, "a-10-0-0-10", {"metadata": {"finalizers": both}})
    await world.remove(kinds.CLAIM, "c1")
    assert await world.ask_text("c2") == ["10.0.0.11"]
    # Made again under its old name, the claim does not wait for the old address either.
    assert await world.ask_text("c1") == ["10.0.0.12"]
    await world.edit(kinds.ADDRESS, "a-10-0-0-10", {"metadata": {"finalizers": []}})
    await world.gone(kinds.ADDRESS, "a-10-0-0-10")
    assert await world.ask_text("c3") == ["10.0.0.10"]


async def test_claims_of_a_pool_removed_by_force_are_released(world: World) -> None:
    """X-18: upstream's hang for ever."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    await world.ask_capi("m")
    await world.delete(kinds.POOL, "pool")
    await world.edit(kinds.POOL, "pool", {"metadata": {"finalizers": []}})
    await world.gone(kinds.POOL, "pool")
    await world.remove(kinds.CLAIM, "c1")
    await world.remove(CAPI_CLAIM, "m")
    assert await world.list(kinds.ADDRESS) == []
    assert await world.list(CAPI_ADDRESS) == []


async def test_a_claim_whose_address_object_was_torn_away_gets_the_same_address_again(world: World) -> None:
    """Untouched, and before anyone who waits: nobody was told of another address."""
    await world.create(pool("pool", A))
    await world.ask_text("c1", "c2", "c3")
    assert await world.refused("waits") == "Exhausted IP Pools"
    before = await world.get(kinds.CLAIM, "c2")
    torn = await world.get(kinds.ADDRESS, "a-10-0-0-11")
    await world.delete(kinds.ADDRESS, "a-10-0-0-11")
    await world.edit(kinds.ADDRESS, "a-10-0-0-11", {"metadata": {"finalizers": []}})

    async def restored() -> dict[str, Any]:
        found = await world.get(kinds.ADDRESS, "a-10-0-0-11")
        assert meta.uid(found) != meta.uid(torn)
        return found

    again = await eventually(restored, SOON)
    assert again["spec"] == torn["spec"]
    await world.passed()
    assert await world.get(kinds.CLAIM, "c2") == before
    assert "address" not in (await world.get(kinds.CLAIM, "waits"))["status"]


async def test_a_claim_torn_away_with_its_address_leaves_nothing_taken(world: World) -> None:
    """What was kept for it in memory goes when it does."""
    await world.create(pool("pool", A))
    await world.ask_text("c1", "c2", "c3")
    assert await world.refused("waits") == "Exhausted IP Pools"
    await world.annotate(kinds.CLAIM, "c2", kinds.PAUSED, "")
    await world.delete(kinds.ADDRESS, "a-10-0-0-11")
    await world.edit(kinds.ADDRESS, "a-10-0-0-11", {"metadata": {"finalizers": []}})
    await world.gone(kinds.ADDRESS, "a-10-0-0-11")
    await world.passed()
    assert "address" not in (await world.get(kinds.CLAIM, "waits"))["status"]
    await world.edit(kinds.CLAIM, "c2", {"metadata": {"finalizers": []}})
    await world.delete(kinds.CLAIM, "c2")
    assert (await world.address_of("waits", SOON))["spec"]["address"] == "10.0.0.11"


@pytest.mark.parametrize("resource", [kinds.CLAIM, CAPI_CLAIM], ids=["metal3", "capi"])
async def test_a_claim_torn_away_leaves_no_address_behind(world: World, resource: Resource) -> None:
    """M-110: a deletion that began before our finalizer was stored wins; the same as removing it by force."""
    await world.create(pool("pool", A), claim("c1") if resource is kinds.CLAIM else capi_claim("c1"))
    await (world.address_of if resource is kinds.CLAIM else world.capi_address_of)("c1")
    await world.edit(resource, "c1", {"metadata": {"finalizers": []}})
    await world.client.delete(resource, "c1", world.namespace)
    await world.gone(kinds.ADDRESS if resource is kinds.CLAIM else CAPI_ADDRESS, "a-10-0-0-10", SOON)
    assert await world.ask_text("c2") == ["10.0.0.10"]


async def test_a_hand_made_address_goes_with_the_claim_that_adopted_it(world: World) -> None:
    """M-127, the end: upstream leaves `foo` behind."""
    await world.create(address("foo", "10.0.0.10", "ext"), pool("pool", A))
    await world.ask("ext")
    await world.remove(kinds.CLAIM, "ext")
    await world.gone(kinds.ADDRESS, "foo", SOON)


async def test_what_was_wrong_goes_with_the_pool_it_was_about(world: World) -> None:
    """A claim that asked for a taken address waits for a pool now, and says no longer that it is taken."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    await world.create(claim("c2", wants="10.0.0.10"))
    assert await world.error_of("c2") == "Requested IP not available"
    await world.delete(kinds.POOL, "pool")
    await world.remove(kinds.CLAIM, "c1")
    await world.gone(kinds.POOL, "pool")
    await waits(world, "c2", "PoolNotFound")
