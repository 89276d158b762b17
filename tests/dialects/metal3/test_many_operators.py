"""T08: three operators without election on one pool that both APIs draw from, just large enough.

Leaders are for speed. That no address goes twice is the storage's word (docs/decisions/0006), and here it is
held to it: a witness notes every address any claim ever showed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import pytest
import pytest_asyncio
from tests.support.cluster import make_namespace
from tests.support.deep import FACTOR
from tests.support.metal3 import CAPI_ADDRESS, CAPI_CLAIM, Witness, World, capi_claim, claim, pool, ranged
from tests.support.operator import Operator, eventually, running

from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.kube.watch import reflect

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.asyncio(loop_scope="session")]

EACH = 60
ROUNDS = 2 * FACTOR


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operators(cluster: DevCluster) -> AsyncIterator[list[Operator]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running(cluster, dialects=("metal3",), metal3_sweep_seconds=1.0))
            for _ in range(3)
        ]


@pytest.mark.parametrize("strategy", ["sequential", "random"])
@pytest.mark.parametrize("round", range(ROUNDS))
async def test_three_operators_give_every_claim_one_address_and_none_twice(
    cluster: DevCluster, operators: list[Operator], strategy: str, round: int
) -> None:
    """I1, I2, I5: 60 claims of each API, 120 addresses."""
    world = World(operators[0].client, await make_namespace(cluster))
    mine, theirs = Witness("address"), Witness("addressRef")
    async with asyncio.TaskGroup() as group:
        watches = [
            group.create_task(reflect(world.client, resource, witness, namespace=world.namespace))
            for resource, witness in ((kinds.CLAIM, mine), (CAPI_CLAIM, theirs))
        ]
        await flood(world, strategy)
        await eventually(lambda: settled(world), 120)
        await eventually(partial(all_seen, mine, theirs))
        for watch in watches:
            watch.cancel()
    assert (mine.changed(), theirs.changed()) == ({}, {}), "I3: a claim was shown two addresses"


async def all_seen(*witnesses: Witness) -> bool:
    return all(len(witness.shown) == EACH for witness in witnesses)


async def flood(world: World, strategy: str) -> None:
    last = 2 * EACH
    spec = ranged({"start": "10.0.0.1", "end": f"10.0.0.{last}"}, allocationStrategy=strategy)
    await world.create(pool("pool", spec))
    # Their consumers hold them too, as Metal3's own do: the operators' finalizers join a list.
    theirs = ["test.example/consumer"]
    asked = [make(f"c{i:03}", finalizers=theirs) for i in range(EACH) for make in (claim, capi_claim)]
    await asyncio.gather(*(world.create(obj) for obj in asked))


async def settled(world: World) -> bool:
    """Every claim names a living object that names it; every address is taken once; nothing is left over."""
    mine = {record["metadata"]["name"]: record for record in await world.list(kinds.ADDRESS)}
    theirs = {record["metadata"]["name"]: record for record in await world.list(CAPI_ADDRESS)}
    for asked in await world.list(kinds.CLAIM):
        record = mine.get(asked.get("status", {}).get("address", {}).get("name"))
        assert record is not None
        assert record["spec"]["claim"]["name"] == asked["metadata"]["name"]
    for asked in await world.list(CAPI_CLAIM):
        record = theirs.get(asked.get("status", {}).get("addressRef", {}).get("name"))
        assert record is not None
        assert record["spec"]["claimRef"]["name"] == asked["metadata"]["name"]
    addresses = [record["spec"]["address"] for record in (*mine.values(), *theirs.values())]
    assert len(addresses) == len(set(addresses)) == 2 * EACH
    return True
