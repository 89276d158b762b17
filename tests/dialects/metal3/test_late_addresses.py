"""Watches of two kinds do not keep step: claims are heard of, and their addresses not yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.metal3 import PAUSED, World, address, claim, pool
from tests.support.operator import Operator, running

from berth.control.cache import Cache
from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    async with running(cluster, dialects=("metal3",)) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def half_deaf(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The operator hears of no IPAddress of this namespace by itself."""
    apply = Cache.apply

    def heard(cache: Cache, type: str, obj: dict[str, Any]) -> None:
        if obj["kind"] != "IPAddress" or obj["metadata"]["namespace"] != world.namespace:
            apply(cache, type, obj)

    monkeypatch.setattr(Cache, "apply", heard)
    return world


async def moved(world: World) -> dict[str, Any]:
    """Claim and address as `clusterctl move` makes them: our finalizers, owners, and no status."""
    made = await world.create(pool("pool"))
    held = await world.create(claim("c1", finalizers=[kinds.CLAIM_FINALIZER], annotations=PAUSED))
    owners = [meta.owner_reference(made), meta.owner_reference(held)]
    about: dict[str, Any] = {"finalizers": [kinds.ADDRESS_FINALIZER], "ownerReferences": owners}
    await world.create(address("a-10-0-0-11", "10.0.0.11", "c1", **about))
    return held


async def test_a_claim_that_was_moved_keeps_its_address(half_deaf: World) -> None:
    """10.0.0.10 is free, and lower."""
    await moved(half_deaf)
    await half_deaf.annotate(kinds.CLAIM, "c1", kinds.PAUSED, None)
    assert (await half_deaf.address_of("c1"))["spec"]["address"] == "10.0.0.11"
    assert [one["metadata"]["name"] for one in await half_deaf.list(kinds.ADDRESS)] == ["a-10-0-0-11"]


async def test_a_claim_that_goes_takes_along_what_it_names(half_deaf: World) -> None:
    held = await moved(half_deaf)
    shown = {"status": {"address": {"name": "a-10-0-0-11", "namespace": held["metadata"]["namespace"]}}}
    await half_deaf.client.patch(kinds.CLAIM, "c1", shown, half_deaf.namespace, subresource="status")
    await half_deaf.client.delete(kinds.CLAIM, "c1", half_deaf.namespace)
    await half_deaf.annotate(kinds.CLAIM, "c1", kinds.PAUSED, None)
    await half_deaf.gone(kinds.CLAIM, "c1")
    await half_deaf.gone(kinds.ADDRESS, "a-10-0-0-11")
