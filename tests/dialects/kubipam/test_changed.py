"""Specs that change although they must not: on a cluster whose CRDs lack the rule, everything stays safe."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.cluster import make_namespace
from tests.support.kubipam import World
from tests.support.operator import Operator, eventually, running

from berth.devcluster import DevCluster
from berth.dialects.kubipam.crds import crds
from berth.dialects.kubipam.kinds import BUSY, FIRST_MATCH, INVALID, RANGE, READY, REQUEST, ROUND_ROBIN

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lenient() -> AsyncIterator[DevCluster]:
    """A cluster of its own: CRDs are shared by everyone on one."""
    async with DevCluster() as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(lenient: DevCluster) -> AsyncIterator[Operator]:
    async with running(lenient, crds=without_rules(), dialects=("kubipam",)) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def world(operator: Operator, lenient: DevCluster) -> World:
    return World(operator.client, await make_namespace(lenient))


def without_rules() -> list[dict[str, object]]:
    """The CRDs as an old cluster has them."""
    found = copy.deepcopy(crds())
    for crd in found:
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        del spec["x-kubernetes-validations"]
    return list(found)


async def test_leaving_round_robin_drops_the_cursors_with_the_next_grant(world: World) -> None:
    """K-074"""
    await world.range("10.0.0.0/24", mode=ROUND_ROBIN)
    await world.grants([32, 32])
    await world.release("r0")
    await world.change(RANGE, "p", mode=FIRST_MATCH)
    await eventually(lambda: _grants_from_the_start(world))
    await world.range_becomes(roundRobin=None)


async def _grants_from_the_start(world: World) -> bool:
    name = f"n{(await world.client.revision(REQUEST))}"
    return await world.granted(name) == "10.0.0.0/32"


async def test_an_invalid_range_that_is_repaired_serves_again(world: World) -> None:
    """K-092: holders stay Ready, newcomers are Invalid until then."""
    await world.range("10.0.0.0/24")
    cidr = await world.granted("holder")
    await world.change(RANGE, "p", ranges=["nonsense"])
    await world.range_becomes(state=INVALID, message='invalid ip range "nonsense"')
    await world.ask("new")
    fault = 'invalid ip range "nonsense"'
    await world.refused("new", INVALID, f"IPAMRange {world.namespace}/p not valid: {fault}")
    assert await world.becomes("holder", state=READY, cidr=cidr)
    await world.change(RANGE, "p", ranges=["10.0.0.0/24"])
    await world.range_becomes(state=READY, message=None)
    await world.becomes("new", state=READY, cidr="10.0.0.1/32", message=None)


async def test_a_grown_range_serves_those_who_waited(world: World) -> None:
    """K-094"""
    await world.range("10.0.0.0/30")
    await world.grants([32] * 4)
    assert await world.granted("waiting") == "none"
    await world.change(RANGE, "p", ranges=["10.0.0.0/29"])
    await world.becomes("waiting", state=READY, cidr="10.0.0.4/32")
    assert await world.grants([32] * 4, start=5) == "10.0.0.5/32 10.0.0.6/32 10.0.0.7/32 none"


async def test_a_new_chunk_size_counts_for_the_next_request(world: World) -> None:
    """K-095"""
    await world.range("192.168.0.0/16", chunkSize=24)
    assert await world.granted("one") == "192.168.0.0/24"
    await world.change(RANGE, "p", chunkSize=28)
    await eventually(lambda: _gets(world, 28))
    assert (await world.status("one"))["cidr"] == "192.168.0.0/24"


async def _gets(world: World, length: int) -> bool:
    """A request made after the change was seen."""
    cidr = await world.granted(f"n{(await world.client.revision(REQUEST))}")
    return cidr.endswith(f"/{length}")


async def test_a_granted_request_keeps_its_block_whatever_it_asks_now(world: World) -> None:
    """K-096"""
    await world.range("10.0.0.0/24")
    cidr = await world.granted("r")
    await world.change(REQUEST, "r", size=28)
    assert await world.granted("other") == "10.0.0.1/32"
    assert await world.becomes("r", state=READY, cidr=cidr)


async def test_a_block_that_is_outside_by_now_stays_and_is_released(world: World) -> None:
    """K-098: removed space is never granted again, and its holder keeps it."""
    await world.range("10.0.0.0/31", "10.1.0.0/31")
    assert await world.granted("r", request="10.1.0.0") == "10.1.0.0/32"
    await world.change(RANGE, "p", ranges=["10.0.0.0/31"])
    await eventually(lambda: _is_outside(world))
    assert await world.becomes("r", state=READY, cidr="10.1.0.0/32")
    await world.release("r")
    await world.range_becomes(taken=[])


async def _is_outside(world: World) -> bool:
    name = f"n{(await world.client.revision(REQUEST))}"
    await world.ask(name, request="10.1.0.1")
    status = await world.answered(name)
    await world.release(name)
    return bool(status["state"] == BUSY and status["message"].endswith("outside of the range"))


async def test_a_block_is_freed_where_it_was_taken(world: World) -> None:
    """Contract 2.9: the reference of a granted request changes; upstream freed it in the new range."""
    await world.range("10.0.0.0/24")
    await world.range("10.0.0.0/24", name="q")
    assert await world.granted("r", request="10.0.0.7") == "10.0.0.7/32"
    assert await world.granted("other", range="q", request="10.0.0.7") == "10.0.0.7/32"
    await world.change(REQUEST, "r", ipam={"name": "q"})
    await world.release("r")
    await world.range_becomes(taken=[])
    await world.range_becomes("q", taken=["10.0.0.7"])
