"""Many claims that wait, and claims that come and go faster than they can be served."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from tests.support.deep import FACTOR
from tests.support.metal3 import CAPI_ADDRESS, CAPI_CLAIM, World, capi_claim, claim, pool, ranged
from tests.support.operator import Operator, eventually, running

from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.errors import AlreadyExists, NotFound
from berth.kube import meta
from berth.kube.resource import Resource

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]

WAITING = 10_000
IN_FLIGHT = 64
BUSY = "example.org/busy"
LATEST_SECONDS = 30.0  # 5 on a machine that does nothing else


def made(name: str, number: int) -> dict[str, Any]:
    """Every third is Cluster API's."""
    return claim(name) if number % 3 else capi_claim(name)


async def answered(world: World) -> tuple[int, int]:
    """How many claims have an address, and how many a reason why not."""
    bound = told = 0
    for one in (*await world.list(kinds.CLAIM), *await world.list(CAPI_CLAIM)):
        status = one.get("status") or {}
        bound += "address" in status or "addressRef" in status
        told += "errorMessage" in status or bool(meta.condition(one, "Ready"))
    return bound, told


async def test_two_hundred_that_wait_are_bound_when_space_comes(world: World) -> None:
    """T33: an empty pool, then releases, then growth: within five seconds, none made anew."""
    await world.create(pool("pool", ranged({"start": "10.0.0.1", "end": "10.0.0.50"})))
    holders = [f"h{i}" for i in range(50)]
    await asyncio.gather(*(world.create(claim(name)) for name in holders))
    await eventually(lambda: has(world, bound=50), 60)
    await asyncio.gather(*(world.create(made(f"w{i}", i)) for i in range(200)))
    await eventually(lambda: has(world, told=200), 60)
    uids = {meta.uid(one) for one in (*await world.list(kinds.CLAIM), *await world.list(CAPI_CLAIM))}
    await asyncio.gather(*(world.delete(kinds.CLAIM, name) for name in holders))
    await eventually(lambda: has(world, bound=50, gone=50), 60)
    grown = {"spec": {"pools": [{"start": "10.0.0.1", "end": "10.0.0.200"}]}}
    await world.edit(kinds.POOL, "pool", grown)
    await eventually(lambda: has(world, bound=200), LATEST_SECONDS)
    after = {meta.uid(one) for one in (*await world.list(kinds.CLAIM), *await world.list(CAPI_CLAIM))}
    assert after < uids


async def has(world: World, *, bound: int | None = None, told: int | None = None, gone: int = 0) -> bool:
    found = await answered(world)
    if gone:
        assert len(await world.list(kinds.CLAIM)) + len(await world.list(CAPI_CLAIM)) == 250 - gone
    assert bound is None or found[0] == bound
    assert told is None or found[1] >= told
    return True


@pytest_asyncio.fixture(loop_scope="session")
async def alone() -> AsyncIterator[Operator]:
    """On a control plane of its own: so many claims would weigh on everybody else's."""
    async with DevCluster() as cluster, running(cluster, dialects=("metal3",)) as operator:
        yield operator


async def test_claims_on_an_exhausted_pool_cost_no_requests_while_they_wait(alone: Operator) -> None:
    """10,000 of them: not one request for five seconds; one address that comes free serves one of them. They
    come held by their finalizers, as from a backup, which spares a write for each."""
    world, meter = World(alone.client, "default"), Meter(alone.listening.metrics)
    await world.create(pool("pool", ranged({"start": "10.0.0.1", "end": "10.0.0.1"})))
    await world.ask("holder")
    limit = asyncio.Semaphore(IN_FLIGHT)

    async def ask(number: int) -> None:
        finalizer = kinds.CLAIM_FINALIZER if number % 3 else kinds.CAPI_CLAIM_FINALIZER
        body = made(f"w{number:04}", number)
        body["metadata"]["finalizers"] = [finalizer]
        async with limit:
            await world.create(body)

    await asyncio.gather(*map(ask, range(WAITING)))

    async def all_wait() -> bool:
        return await meter.is_still() and await has(world, told=WAITING)

    await eventually(all_wait, 600, every=1.0)
    await world.delete(kinds.CLAIM, "holder")
    await eventually(lambda: has(world, bound=1), 60, every=1.0)


class Meter:
    """The operator's own count of its requests. A watch counts when it ends, and is left out; so are the
    Events that tell of those who came, which are written slowly, so as not to be a flood."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._last = -1.0
        self._still = 0

    async def is_still(self) -> bool:
        """Asked once a second: no request since the last five times."""
        count = await self._read()
        self._still = self._still + 1 if count == self._last else 0
        self._last = count
        return self._still >= 5

    async def _read(self) -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        counts = re.findall(r"^berth_kube_request_seconds_count\{(.*)\} (.*)$", text, re.MULTILINE)
        told = re.findall(r"^berth_events_written_total (.*)$", text, re.MULTILINE)
        asked = sum(float(count) for labels, count in counts if 'verb="watch"' not in labels)
        return asked - sum(map(float, told))


async def test_claims_made_again_at_once_under_their_names_are_served_anew(world: World) -> None:
    """T22: deleted and recreated, some held by another's finalizer; one address each, nothing left behind."""
    await world.create(pool("pool", ranged({"start": "10.0.0.1", "end": "10.0.0.12"})))
    for turn in range(5 * FACTOR):
        await asyncio.gather(*(again(world, number, held=number == turn % 10) for number in range(10)))
    await eventually(lambda: settled(world), 60)
    for number in range(10):
        resource = kinds.CLAIM if number % 3 else CAPI_CLAIM
        await world.delete(resource, f"c{number}")
    await eventually(lambda: nothing_left(world), 60)
    await world.remove(kinds.POOL, "pool")


async def again(world: World, number: int, *, held: bool) -> None:
    name = f"c{number}"
    resource = kinds.CLAIM if number % 3 else CAPI_CLAIM
    with suppress(NotFound):
        await world.delete(resource, name)
    obj = made(name, number)
    if held:
        obj["metadata"]["finalizers"] = [BUSY]
    await eventually(partial(remade, world, obj), 60)
    if held:
        await world.delete(resource, name)
        await eventually(partial(remove_finalizer, world, resource, name), 60)
        await world.gone(resource, name, 60)
        await world.create(made(name, number))


async def remade(world: World, obj: dict[str, Any]) -> bool:
    try:
        await world.create(obj)
    except AlreadyExists:
        return False
    return True


async def remove_finalizer(world: World, resource: Resource, name: str) -> bool:
    """What held it goes; over the version looked at, as others edit the list too."""
    current = await world.get(resource, name)
    left = [finalizer for finalizer in meta.finalizers(current) if finalizer != BUSY]
    version = meta.resource_version(current)
    await world.edit(resource, name, {"metadata": {"finalizers": left, "resourceVersion": version}})
    return True


async def settled(world: World) -> bool:
    bound, _ = await answered(world)
    records = [*await world.list(kinds.ADDRESS), *await world.list(CAPI_ADDRESS)]
    addresses = {record["spec"]["address"] for record in records}
    assert bound == len(records) == len(addresses) == 10
    return True


async def nothing_left(world: World) -> bool:
    return not [*await world.list(kinds.ADDRESS), *await world.list(CAPI_ADDRESS)]
