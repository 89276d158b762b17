"""T08: three operators without election on one pool that both APIs draw from, just large enough.

Leaders are for speed. That no address goes twice is the storage's word (docs/decisions/0006), and here it is
held to it: an observer notes every address any claim ever showed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import make_namespace
from tests.support.deep import FACTOR
from tests.support.metal3 import CAPI_ADDRESS, CAPI_CLAIM, World, capi_claim, claim, pool, ranged
from tests.support.operator import Operator, eventually, running

from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.kube.watch import reflect

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
EACH = 60
ROUNDS = 2 * FACTOR


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operators(cluster: DevCluster) -> AsyncIterator[list[Operator]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running(cluster, dialects=("metal3",), metal3_sweep_seconds=1.0))
            for _ in range(3)
        ]


class Observer:
    """Every address a claim's status ever named."""

    def __init__(self, field: str) -> None:
        self._field = field
        self.shown: dict[str, set[str]] = defaultdict(set)

    def replace(self, items: list[Object], resource_version: str) -> None:
        for obj in items:
            self._note(obj)

    restart = replace

    def apply(self, type: str, obj: Object) -> None:
        self._note(obj)

    def _note(self, obj: Object) -> None:
        named = (obj.get("status") or {}).get(self._field) or {}
        if named.get("name"):
            self.shown[obj["metadata"]["name"]].add(named["name"])

    async def is_complete(self) -> bool:
        return len(self.shown) == EACH


@pytest.mark.parametrize("strategy", ["sequential", "random"])
@pytest.mark.parametrize("round", range(ROUNDS))
async def test_three_operators_give_every_claim_one_address_and_none_twice(
    cluster: DevCluster, operators: list[Operator], strategy: str, round: int
) -> None:
    """I1, I2, I5: 60 claims of each API, 120 addresses."""
    world = World(operators[0].client, await make_namespace(cluster))
    mine, theirs = Observer("address"), Observer("addressRef")
    async with asyncio.TaskGroup() as group:
        watches = [
            group.create_task(reflect(world.client, resource, observer, namespace=world.namespace))
            for resource, observer in ((kinds.CLAIM, mine), (CAPI_CLAIM, theirs))
        ]
        await flood(world, strategy)
        await eventually(lambda: settled(world), 120)
        await eventually(mine.is_complete)
        await eventually(theirs.is_complete)
        for watch in watches:
            watch.cancel()
    for observer in (mine, theirs):
        assert {name: shown for name, shown in observer.shown.items() if len(shown) > 1} == {}


async def flood(world: World, strategy: str) -> None:
    last = 2 * EACH
    spec = ranged({"start": "10.0.0.1", "end": f"10.0.0.{last}"}, allocationStrategy=strategy)
    await world.create(pool("pool", spec))
    makers = [make(f"c{i:03}") for i in range(EACH) for make in (claim, capi_claim)]
    await asyncio.gather(*(world.create(obj) for obj in makers))


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
