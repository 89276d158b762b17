"""Address objects whose claim is gone: collected after a while, never in bulk, never what a person made."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.metal3 import (
    CAPI_ADDRESS,
    PAUSED,
    A,
    World,
    address,
    capi_address,
    claim,
    pool,
    ranged,
)
from tests.support.operator import Operator, eventually, running

from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

GRACE_SECONDS = 0.6
EVENTS = Resource("", "v1", "Event", "events")
FORTY = ranged({"start": "10.0.0.1", "end": "10.0.0.40"})


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    pace: dict[str, Any] = {"metal3_sweep_seconds": 0.1, "metal3_orphan_seconds": GRACE_SECONDS}
    async with running(cluster, dialects=("metal3",), **pace) as started:
        yield started


def lost(last: int, *, capi: bool = False, owners: bool = True) -> dict[str, Any]:
    """An address object as upstream leaves it when its claim was deleted too quickly (X-06)."""
    name, text, of = f"a-10-0-0-{last}", f"10.0.0.{last}", f"gone-{last}"
    kind, version = (
        ("IPAddressClaim", CAPI_ADDRESS.api_version) if capi else ("IPClaim", kinds.CLAIM.api_version)
    )
    owner = {"apiVersion": version, "kind": kind, "name": of, "uid": str(uuid.uuid4())}
    finalizer = kinds.CAPI_ADDRESS_FINALIZER if capi else kinds.ADDRESS_FINALIZER
    make = capi_address if capi else address
    return make(name, text, of, finalizers=[finalizer], ownerReferences=[owner] if owners else [])


async def paused_with(world: World, *objects: dict[str, Any]) -> None:
    """A pool and these objects, with the grace period still to begin: however slowly they are made."""
    await world.create(pool("pool", FORTY, annotations=PAUSED), *objects)


async def resume(world: World) -> None:
    await world.annotate(kinds.POOL, "pool", kinds.PAUSED, None)


@pytest.mark.parametrize("capi", [False, True], ids=["metal3", "capi"])
async def test_an_address_without_its_claim_comes_back_after_the_grace_period(
    world: World, capi: bool
) -> None:
    """M-110: what upstream leaks for ever; and the pool it blocked can go."""
    await paused_with(world, lost(1, capi=capi), claim("c1"))
    began = time.monotonic()
    await resume(world)
    assert (await world.address_of("c1"))["spec"]["address"] == "10.0.0.2"
    await world.gone(CAPI_ADDRESS if capi else kinds.ADDRESS, "a-10-0-0-1")
    assert time.monotonic() - began >= GRACE_SECONDS
    assert await world.ask_text("c2") == ["10.0.0.1"]


async def test_what_a_person_made_stays(world: World) -> None:
    """M-126: for a claim that is still to come."""
    await world.create(pool("pool", FORTY), lost(1, owners=False), address("foo", "10.0.0.2", "ext"), lost(3))
    await world.gone(kinds.ADDRESS, "a-10-0-0-3")
    for name in ("a-10-0-0-1", "foo"):
        assert not meta.is_deleting(await world.get(kinds.ADDRESS, name))


async def test_many_at_once_are_left_for_a_person(world: World) -> None:
    """The brake: more than ten, and more than a twentieth of the pool's; a person's delete releases it."""
    await paused_with(world, *(lost(last) for last in range(1, 12)))
    await resume(world)

    async def told() -> bool:
        return any(event["reason"] == "TooManyWithoutClaim" for event in await world.list(EVENTS))

    await eventually(told)
    assert len(await world.list(kinds.ADDRESS)) == 11
    # With one of them released by a person, ten are left, and ten are collected.
    await world.remove(kinds.ADDRESS, "a-10-0-0-5")

    async def all_gone() -> bool:
        return not await world.list(kinds.ADDRESS)

    await eventually(all_gone)


async def test_an_object_that_a_later_claim_uses_stays(world: World) -> None:
    """The claim was deleted and made again under its name: it adopted the object by name."""
    await paused_with(world, lost(5), claim("gone-5"))
    left = await world.get(kinds.ADDRESS, "a-10-0-0-5")
    await resume(world)
    assert meta.uid(await world.address_of("gone-5")) == meta.uid(left)
    await world.create(lost(3))
    await world.gone(kinds.ADDRESS, "a-10-0-0-3")
    kept = await world.get(kinds.ADDRESS, "a-10-0-0-5")
    assert (meta.uid(kept), meta.is_deleting(kept)) == (meta.uid(left), False)


async def test_nothing_of_a_paused_pool_is_collected(world: World) -> None:
    """A move is under way, perhaps, and the claims come in a moment."""
    await world.create(
        pool("pool", FORTY, annotations=PAUSED), pool("other", {**A, "namePrefix": "o"}), lost(1)
    )
    away = lost(3)
    away["spec"]["pool"]["name"] = "other"
    await world.create(away)
    await world.gone(kinds.ADDRESS, "a-10-0-0-3")
    assert not meta.is_deleting(await world.get(kinds.ADDRESS, "a-10-0-0-1"))
    await resume(world)
    await world.gone(kinds.ADDRESS, "a-10-0-0-1")


async def test_an_owner_struck_off_by_garbage_collection_is_remembered(world: World) -> None:
    """The API server's collector removes references to owners that are gone while another owner lives."""
    await paused_with(world, lost(1))
    await world.edit(kinds.ADDRESS, "a-10-0-0-1", {"metadata": {"ownerReferences": None}})
    await resume(world)
    await world.gone(kinds.ADDRESS, "a-10-0-0-1")


@pytest.mark.parametrize("capi", [False, True], ids=["metal3", "capi"])
async def test_an_owner_struck_off_while_nobody_looked_is_missed_all_the_same(
    world: World, capi: bool
) -> None:
    """The operator was away when the collector did it. The pool still owns what an operator made."""
    made = await world.create(pool("pool", FORTY))
    left = lost(1, capi=capi, owners=False)
    left["metadata"]["ownerReferences"] = [meta.owner_reference(made)]
    await world.create(left, address("foo", "10.0.0.2", "ext"))
    await world.gone(CAPI_ADDRESS if capi else kinds.ADDRESS, "a-10-0-0-1")
    assert not meta.is_deleting(await world.get(kinds.ADDRESS, "foo"))


async def test_a_hand_made_object_with_our_finalizer_can_be_deleted(world: World) -> None:
    """Nothing stays Terminating because of us."""
    await world.create(pool("pool", FORTY), lost(1, owners=False))
    await world.remove(kinds.ADDRESS, "a-10-0-0-1")
