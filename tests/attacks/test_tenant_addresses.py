"""A tenant who may make IPAddresses in a namespace wants an address that another claim of the pool holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.metal3 import (
    CAPI_ADDRESS,
    CAPI_CLAIM,
    A,
    World,
    address,
    capi_address,
    capi_claim,
    claim,
    pool,
    ranged,
)
from tests.support.operator import Operator, eventually, running

from berth.control.cache import Cache
from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
EVENTS = Resource("", "v1", "Event", "events")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    async with running(cluster, dialects=("metal3",)) as started:
        yield started


@pytest.fixture
def world(operator: Operator, namespace: str) -> World:
    return World(operator.client, namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def half_deaf(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The operator hears of no IPAddress of this namespace but those it makes: it hears late."""
    apply = Cache.apply

    def heard(cache: Cache, type: str, obj: Object) -> None:
        if obj["kind"] != "IPAddress" or obj["metadata"]["namespace"] != world.namespace:
            apply(cache, type, obj)

    monkeypatch.setattr(Cache, "apply", heard)
    return world


async def conflict(world: World) -> Object:
    """The pool's condition."""

    async def found() -> Object | None:
        return meta.condition(await world.get(kinds.POOL, "pool"), "AddressConflict")

    return await eventually(found) or {}


async def warned(world: World, kind: str, name: str, reason: str) -> str:
    """The message of the Warning about an object."""

    async def found() -> str:
        for event in await world.list(EVENTS):
            about = event["involvedObject"]
            if (about["kind"], about["name"], event["reason"]) == (kind, name, reason):
                assert event["type"] == "Warning"
                return str(event["message"])
        return ""

    return await eventually(found)


async def counts(world: World, used: int, free: int) -> None:
    """Returns when the pool's status has these."""

    async def same() -> bool:
        found = (await world.get(kinds.POOL, "pool"))["status"]["ipAddresses"]
        assert (found["used"], found["free"]) == (used, free)
        return True

    await eventually(same)


@pytest.mark.parametrize("owned", [False, True])
async def test_making_an_ipaddress_for_an_address_that_a_claim_holds(world: World, owned: bool) -> None:
    """The victim keeps it, the tenant's claim gets another, and the pool says so; forged owners arno use."""
    await world.create(pool("pool", A))
    assert await world.ask_text("victim") == ["10.0.0.10"]
    mine = await world.create(claim("mine", annotations={kinds.PAUSED: ""}))
    forged: Object = {}
    if owned:
        forged = {
            "finalizers": [kinds.ADDRESS_FINALIZER],
            "ownerReferences": [meta.owner_reference(mine)],
        }
    await world.create(address("foo", "10.0.0.10", "mine", **forged))
    found = await conflict(world)
    assert (found["status"], found["reason"]) == ("True", "AddressTaken")
    assert "IPAddress foo: 10.0.0.10 is held by" in found["message"]
    await world.annotate(kinds.CLAIM, "mine", kinds.PAUSED, None)
    assert (await world.address_of("mine"))["spec"]["address"] == "10.0.0.11"
    assert (await world.address_of("victim"))["spec"]["address"] == "10.0.0.10"
    await world.shows({"victim": "10.0.0.10", "mine": "10.0.0.11"})
    await counts(world, 2, 1)
    said = await warned(world, "IPAddress", "foo", "AddressTaken")
    assert f"IPClaim/{world.namespace}/victim" in said
    assert "foo" in await warned(world, "IPPool", "pool", "AddressTaken")


async def test_waiting_with_an_ipaddress_until_the_pool_is_full(world: World) -> None:
    """With nothing else free the tenant's claim waits; when the victim goes, the object holds the address."""
    await world.create(pool("pool", ranged({"start": "10.0.0.10", "end": "10.0.0.10"})))
    await world.ask("victim")
    assert await world.refused("mine") == "Exhausted IP Pools"
    await world.create(address("foo", "10.0.0.10", "mine"))
    await conflict(world)
    await world.passed()
    assert await world.error_of("mine") == "Exhausted IP Pools"
    await world.remove(kinds.CLAIM, "victim")
    assert (await world.address_of("mine"))["metadata"]["name"] == "foo"

    async def over() -> bool:
        stored = await world.get(kinds.POOL, "pool")
        assert meta.condition(stored, "AddressConflict") is None
        used: int = stored["status"]["ipAddresses"]["used"]
        return used == 1

    await eventually(over)


async def test_making_it_in_the_other_api(world: World) -> None:
    """There it has the very name that is the lock, in a kind of its own."""
    await world.create(pool("pool", A))
    await world.ask("victim")
    await world.create(capi_address("a-10-0-0-10", "10.0.0.10", "mine"))
    await conflict(world)
    await world.create(capi_claim("mine"))
    assert (await world.capi_address_of("mine"))["spec"]["address"] == "10.0.0.11"
    await counts(world, 2, 1)


async def test_making_it_while_the_victim_is_being_served(half_deaf: World) -> None:
    """Not heard of in time, it has no lock: whoever stored the name after the address keeps it."""
    world = half_deaf
    await world.create(pool("pool", A))
    await world.ask("victim")
    await world.create(address("foo", "10.0.0.10", "mine"))
    await world.create(claim("mine", finalizers=[kinds.CLAIM_FINALIZER]))  # its objects are asked for
    assert (await world.address_of("mine"))["spec"]["address"] == "10.0.0.11"


async def test_naming_an_ipaddress_after_one_address_and_filling_in_another(world: World) -> None:
    """Neither has a lock then: it gives none to anybody, keeps both from others, and is told of."""
    await world.create(pool("pool", {**A, "pools": [{"start": "10.0.0.10", "end": "10.0.0.13"}]}))
    await world.create(address("a-10-0-0-11", "10.0.0.10", "mine"))
    found = await conflict(world)
    assert (found["status"], found["reason"]) == ("True", "NameMismatch")
    assert await world.ask_text("mine", "other") == ["10.0.0.12", "10.0.0.13"]
    assert "a-10-0-0-10" in await warned(world, "IPAddress", "a-10-0-0-11", "NameMismatch")
    await world.remove(kinds.ADDRESS, "a-10-0-0-11")
    assert await world.ask_text("third", "fourth") == ["10.0.0.10", "10.0.0.11"]


async def test_being_taken_for_the_lock_by_an_operator_that_hears_late(half_deaf: World) -> None:
    """It chooses the name's address, finds the object, and must not call it its own: it has the victim's."""
    world = half_deaf
    await world.create(pool("pool", A))
    await world.ask("victim")
    await world.create(address("a-10-0-0-11", "10.0.0.10", "mine"))
    await world.create(claim("mine"))
    assert (await world.address_of("mine"))["spec"]["address"] == "10.0.0.12"


@pytest.mark.parametrize("name", ["foo", "a-10-0-0-11"])
async def test_two_operators_of_which_one_hears_late(
    cluster: DevCluster, half_deaf: World, name: str
) -> None:
    """Another operator made the victim's object; this one knows the tenant's only, and looks for the lock."""
    world = half_deaf
    made = await world.create(pool("pool", A))
    victim = await world.create(claim("victim", annotations={kinds.PAUSED: ""}))
    owners = [meta.owner_reference(made), meta.owner_reference(victim)]
    about: Object = {"finalizers": [kinds.ADDRESS_FINALIZER], "ownerReferences": owners}
    await world.create(address(name, "10.0.0.10", "mine"))
    heard = await world.get(kinds.ADDRESS, name)
    await world.create(address("a-10-0-0-10", "10.0.0.10", "victim", **about))
    await world.create(claim("mine", finalizers=[kinds.CLAIM_FINALIZER]))
    served = await world.address_of("mine")
    assert served["spec"]["address"] != heard["spec"]["address"]


async def test_an_address_that_two_claims_show_since_before_is_not_moved(
    cluster: DevCluster, world: World
) -> None:
    """A version before this one bound both: each keeps what hosts may use by now, and the pool tells."""
    paused = {kinds.PAUSED: ""}
    await world.create(pool("pool", A, annotations=paused))
    for who, name in (("victim", "a-10-0-0-10"), ("mine", "foo")):
        await world.create(claim(who, finalizers=[kinds.CLAIM_FINALIZER]), address(name, "10.0.0.10", who))
        status = {"status": {"address": {"name": name, "namespace": world.namespace}}}
        await world.edit(kinds.CLAIM, who, status, "status")
    await world.annotate(kinds.POOL, "pool", kinds.PAUSED, None)
    found = await conflict(world)
    assert "IPAddress foo" in found["message"]
    await world.passed()
    for who, name in (("victim", "a-10-0-0-10"), ("mine", "foo")):
        status = (await world.get(kinds.CLAIM, who))["status"]
        assert status == {"address": {"name": name, "namespace": world.namespace}}
    assert await world.ask_text("next") == ["10.0.0.11"]


async def test_naming_a_claim_of_the_other_api_of_the_same_name(world: World) -> None:
    """An IPAddressClaim called like the victim is another claim: the victim's address is not its own."""
    await world.create(pool("pool", A))
    await world.ask("victim")
    await world.create(capi_address("foo", "10.0.0.10", "victim"))
    await conflict(world)
    await world.create(capi_claim("victim"))
    assert (await world.capi_address_of("victim"))["spec"]["address"] == "10.0.0.11"
    shown = {one["metadata"]["name"] for one in await world.list(CAPI_ADDRESS)}
    assert shown == {"foo", "a-10-0-0-11"}
    assert (await world.get(CAPI_CLAIM, "victim"))["status"]["addressRef"] == {"name": "a-10-0-0-11"}
