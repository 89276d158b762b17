"""T02: the operator's process is killed at random moments of a storm of claims that come and go.

The operator in a process of its own, ended by SIGKILL, started again at once. tests/faults kills it before
and after every single write; here it is the moment that is arbitrary.

A deletion can win against the finalizer that is just being stored. If the operator is killed before it gives
back what it took for that claim, the address is left to the janitor (and, where garbage collection runs, to
that), so the janitor does not wait for ten minutes here.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
from tests.support.deep import FACTOR
from tests.support.metal3 import CAPI_ADDRESS, CAPI_CLAIM, Witness, World, capi_claim, claim, pool, ranged
from tests.support.operator import admin, crds_of, eventually, install

from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.errors import NotFound
from berth.kube import meta
from berth.kube.resource import Resource
from berth.kube.watch import reflect

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(600 * FACTOR),
    pytest.mark.asyncio(loop_scope="session"),
]
Object = dict[str, Any]
ADDRESSES = 24
NAMES = 40  # more than addresses: someone always waits
KILLS = 6 * FACTOR


PROGRAM = """
import asyncio, pathlib, sys
from berth.run import operate
from berth.dialects.metal3.settings import Metal3Settings
from berth.settings import Settings
kubeconfig = pathlib.Path(sys.argv[1])
swift = Metal3Settings(sweep_seconds=1.0, orphan_seconds=5.0)
asyncio.run(operate(Settings(kubeconfig=kubeconfig, dialects=("metal3",), parts=(swift,))))
"""


@asynccontextmanager
async def process(cluster: DevCluster) -> AsyncIterator[asyncio.subprocess.Process]:
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(cluster.kubeconfig)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            running.send_signal(signal.SIGKILL)
        await running.wait()


class Storm:
    """Claims of both APIs that come and go at random; every name is a claim of one API only."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        self.living: set[int] = set()
        self.over = False

    async def blow(self) -> None:
        while not self.over:
            number = self._random.randrange(NAMES)
            resource = resource_of(number)
            with suppress(NotFound):
                if number in self.living:
                    self.living.discard(number)
                    await self._world.delete(resource, f"c{number}")
                elif await self._is_free(resource, f"c{number}"):
                    await self._world.create(made(number))
                    self.living.add(number)
            await asyncio.sleep(self._random.uniform(0, 0.03))

    async def _is_free(self, resource: Resource, name: str) -> bool:
        """A name whose claim is still going is not there to be taken."""
        try:
            await self._world.get(resource, name)
        except NotFound:
            return True
        return False


def resource_of(number: int) -> Resource:
    return kinds.CLAIM if number % 2 else CAPI_CLAIM


def made(number: int) -> Object:
    return (claim if number % 2 else capi_claim)(f"c{number}")


async def test_killed_at_any_moment_no_address_is_doubled_moved_or_lost(
    cluster: DevCluster, namespace: str
) -> None:
    """I1, I2, I4, I5."""
    seed = random.randrange(2**32)
    async with admin(cluster) as client:
        await install(client, crds_of("metal3"))
        world = World(client, namespace)
        await world.create(pool("pool", ranged({"start": "10.0.0.1", "end": f"10.0.0.{ADDRESSES}"})))
        storm = Storm(world, seed)
        mine, theirs = Witness("address"), Witness("addressRef")
        async with asyncio.TaskGroup() as group:
            watches = [
                group.create_task(reflect(client, resource, witness, namespace=namespace))
                for resource, witness in ((kinds.CLAIM, mine), (CAPI_CLAIM, theirs))
            ]
            blowing = group.create_task(storm.blow())
            await kill_and_start(cluster, world, random.Random(seed))
            storm.over = True
            await blowing
            async with process(cluster):
                await eventually(lambda: whole(world, storm.living), 90)
            for watch in watches:
                watch.cancel()
        assert (mine.changed(), theirs.changed()) == ({}, {}), f"I3: an address was moved, seed {seed}"
        assert len(mine.shown) + len(theirs.shown) > KILLS, "the storm was no storm"


async def kill_and_start(cluster: DevCluster, world: World, moments: random.Random) -> None:
    """Each life ends a random moment after its first writes are seen."""
    for _ in range(KILLS):
        before = await world.client.revision(kinds.ADDRESS, world.namespace)
        async with process(cluster) as running:
            await eventually(partial(moved, world, before, running), 60)
            await asyncio.sleep(moments.uniform(0.0, 0.7))


async def moved(world: World, before: str, running: asyncio.subprocess.Process) -> bool:
    assert running.returncode is None, "the operator ended by itself"
    records = [*await world.list(kinds.ADDRESS), *await world.list(CAPI_ADDRESS)]
    return any(int(meta.resource_version(record)) > int(before) for record in records)


async def whole(world: World, living: set[int]) -> bool:
    """Every address is one living claim's; who has none is told why; nothing is going any more."""
    records = {
        kinds.CLAIM.key: {r["metadata"]["name"]: r for r in await world.list(kinds.ADDRESS)},
        CAPI_CLAIM.key: {r["metadata"]["name"]: r for r in await world.list(CAPI_ADDRESS)},
    }
    asked = {f"c{number}" for number in living}
    found = [*await world.list(kinds.CLAIM), *await world.list(CAPI_CLAIM)]
    assert {one["metadata"]["name"] for one in found} == asked
    bound = 0
    for one in found:
        status = one.get("status") or {}
        named = (status.get("address") or status.get("addressRef") or {}).get("name")
        kind = kinds.CLAIM.key if one["kind"] == "IPClaim" else CAPI_CLAIM.key
        if named:
            assert named in records[kind]  # or it was made after we looked
            reference = records[kind][named]["spec"].get("claim") or records[kind][named]["spec"]["claimRef"]
            assert reference["name"] == one["metadata"]["name"]
            bound += 1
        else:
            assert "errorMessage" in status or "conditions" in status
    addresses = [r["spec"]["address"] for kept in records.values() for r in kept.values()]
    assert len(addresses) == len(set(addresses)) == bound == min(ADDRESSES, len(living))
    return True
