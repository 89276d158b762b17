"""Life cycle: who stays while whom, who is woken by what, and what is told."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cluster import make_namespace
from tests.support.kubipam import World
from tests.support.operator import eventually

from berth.devcluster import DevCluster
from berth.dialects.kubipam.kinds import (
    BUSY,
    DELETING,
    FINALIZER,
    INVALID,
    RANGE,
    READY,
    REQUEST,
    WAITING_FOR_REQUESTS,
)
from berth.errors import Invalid
from berth.kube.client import PatchKind
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_a_deleted_request_gives_back_its_block(world: World) -> None:
    """K-076"""
    await world.range("192.168.0.0/16")
    assert await world.granted("r", size=24) == "192.168.0.0/24"
    await world.release("r")
    assert (await world.get_range())["status"]["taken"] == []
    assert await world.granted("again", size=24) == "192.168.0.0/24"
    await world.told("Normal", "release", "cidr 192.168.0.0/24 released")


async def test_a_range_stays_while_a_request_holds_a_block(world: World) -> None:
    """K-077, K-078, K-082"""
    await world.range("10.0.0.0/24")
    cidr = await world.granted("r")
    await world.delete_range()
    await world.range_becomes(state=DELETING, message=WAITING_FOR_REQUESTS)
    assert (await world.get_range())["metadata"]["finalizers"] == [FINALIZER]
    await world.client.patch(REQUEST, "r", {"metadata": {"labels": {"a": "b"}}}, world.namespace)
    await world.ask("new")
    await world.answered("new")
    assert await world.becomes("r", state=READY, cidr=cidr, message=None)
    await world.delete("new")
    await world.release("r")
    await world.range_gone()


async def test_a_range_nobody_refers_to_goes_at_once(world: World) -> None:
    """K-079"""
    await world.range("10.0.0.0/24")
    await world.range_becomes(state=READY)
    await world.delete_range()
    await world.range_gone()


async def test_an_invalid_request_keeps_its_range(world: World) -> None:
    """K-080"""
    await world.range("10.0.0.0/24")
    await world.ask("r", size=99)
    await world.refused("r", INVALID, "size 99 too large: network 32")
    await world.delete_range()
    await world.range_becomes(state=DELETING, message=WAITING_FOR_REQUESTS)
    await world.release("r")
    await world.range_gone()


async def test_an_invalid_range_stays_for_its_requests(world: World) -> None:
    """K-103"""
    await world.range("nonsense")
    await world.ask("r")
    await world.answered("r")
    await world.delete_range()
    await world.range_becomes(state=DELETING, message=WAITING_FOR_REQUESTS)
    await world.release("r")
    await world.range_gone()


async def test_a_range_that_goes_serves_nobody_new(world: World) -> None:
    """K-081"""
    await world.range("10.0.0.0/24")
    await world.granted("holder")
    await world.delete_range()
    await world.range_becomes(state=DELETING)
    await world.ask("r")
    await world.refused("r", INVALID, f"IPAMRange {world.namespace}/p not valid: IPRange deleted")


async def test_a_request_waits_for_its_range_to_be_made(world: World) -> None:
    """K-083, K-084"""
    await world.ask("r")
    await world.refused("r", INVALID, f"IPAMRange {world.namespace}/p not found")
    await world.range("10.0.0.0/24")
    await world.becomes("r", state=READY, cidr="10.0.0.0/32", message=None)


async def test_both_are_held_by_the_finalizer(world: World) -> None:
    """K-085"""
    await world.range("10.0.0.0/24")
    await world.granted("r")
    assert (await world.get("r"))["metadata"]["finalizers"] == [FINALIZER]
    assert (await world.get_range())["metadata"]["finalizers"] == [FINALIZER]


async def test_a_grant_is_told_on_the_range(world: World) -> None:
    """K-086"""
    await world.range("192.168.0.0/16", chunkSize=24)
    await world.granted("r")
    await world.told("Normal", "allocation", "cidr 192.168.0.0/24 allocated")


async def test_a_busy_request_goes_without_releasing_anything(world: World) -> None:
    """K-087"""
    await world.range("10.0.0.0/31")
    assert await world.granted("holder", size=31) == "10.0.0.0/31"
    assert await world.granted("busy") == "none"
    await world.release("busy")
    assert (await world.get_range())["status"]["taken"] == ["10.0.0.0-10.0.0.1"]
    assert (await world.status("holder"))["state"] == READY
    await world.release("holder")
    await world.told("Normal", "release", "cidr 10.0.0.0/31 released")
    assert [reason for _, reason, _ in await world.events()].count("release") == 1


async def test_a_freed_block_reaches_a_waiting_request_at_once(world: World) -> None:
    """K-088: not after two minutes; `test_simulated.py` shows that a second is enough."""
    await world.range("10.0.0.1")
    await world.granted("holder")
    assert await world.granted("waiting") == "none"
    await world.delete("holder")
    await world.becomes("waiting", state=READY, cidr="10.0.0.1/32", message=None)


async def test_who_waits_for_a_large_block_holds_up_nobody(world: World) -> None:
    """K-088 for mixed lengths: the oldest in line wants more than there is."""
    await world.range("10.0.0.0/30")
    await world.grants([31, 32, 32])
    assert await world.granted("large", size=30) == "none"
    assert await world.granted("small", size=32) == "none"
    await world.release("r1")
    await world.becomes("small", state=READY)
    assert (await world.status("large"))["state"] == BUSY


async def test_a_range_of_another_namespace_serves(world: World, cluster: DevCluster) -> None:
    """K-089"""
    infra = World(world.client, await make_namespace(cluster))
    await infra.range("10.7.0.0/24")
    await world.ask("r", ipam={"name": "p", "namespace": infra.namespace})
    await world.becomes("r", state=READY, cidr="10.7.0.0/32")
    await infra.delete_range()
    await infra.range_becomes(state=DELETING)
    await world.release("r")
    await infra.range_gone()


async def test_without_a_namespace_the_own_range_serves(world: World, cluster: DevCluster) -> None:
    """K-090"""
    other = World(world.client, await make_namespace(cluster))
    await other.range("10.8.0.0/24")
    await world.range("10.9.0.0/24")
    assert await world.granted("r") == "10.9.0.0/32"
    assert await other.granted("r") == "10.8.0.0/32"


async def test_a_request_goes_though_its_range_is_gone(world: World) -> None:
    """K-091"""
    await world.range("10.0.0.0/24")
    await world.granted("r")
    await world.delete_range()
    await world.client.patch(RANGE, "p", {"metadata": {"finalizers": None}}, world.namespace)
    await world.range_gone()
    await world.release("r")


@pytest.mark.parametrize(
    ("resource", "name", "change"),
    [
        (RANGE, "p", {"ranges": ["10.0.0.0/23"]}),
        (RANGE, "p", {"chunkSize": 28}),
        (RANGE, "p", {"chunkSize": None}),
        (RANGE, "p", {"mode": "RoundRobin"}),
        (REQUEST, "r", {"size": 30}),
        (REQUEST, "r", {"request": "10.0.0.7"}),
        (REQUEST, "r", {"description": "other"}),
        (REQUEST, "r", {"ipam": {"name": "q"}}),
        (REQUEST, "r", {"ipam": {"name": "p", "namespace": "elsewhere"}}),
    ],
)
async def test_a_changed_spec_is_refused_by_the_server(
    world: World, resource: Resource, name: str, change: dict[str, Any]
) -> None:
    """K-093"""
    await world.range("10.0.0.0/24", chunkSize=29)
    await world.ask("r")
    with pytest.raises(Invalid, match="must never be modified"):
        await world.change(resource, name, **change)


@pytest.mark.parametrize(("resource", "name"), [(RANGE, "p"), (REQUEST, "r")])
async def test_nobody_gets_round_the_rule(world: World, resource: Resource, name: str) -> None:
    """K-093: not with an update of the whole object, nor by way of no spec at all. A status is no spec."""
    await world.range("10.0.0.0/24")
    await world.granted("r")
    obj = await world.client.get(resource, name, world.namespace)
    changed = {"ranges": ["10.9.0.0/24"]} if resource is RANGE else {"ipam": {"name": "p"}, "size": 30}
    with pytest.raises(Invalid, match="must never be modified"):
        await world.client.replace(resource, {**obj, "spec": changed})
    for steps in ([], [{"op": "add", "path": "/spec", "value": changed}]):
        without = [{"op": "remove", "path": "/spec"}, *steps]
        with pytest.raises(Invalid):
            await world.client.patch(resource, name, without, world.namespace, kind=PatchKind.JSON)
    body = {"status": {"message": "someone was here"}}
    await world.client.patch(resource, name, body, world.namespace, subresource="status")


async def test_zero_values_and_absent_ones_are_the_same_spec(world: World) -> None:
    """K-093: upstream's controller wrote `chunkSize: 0` and an empty mode; that is no change."""
    await world.range("10.0.0.0/24")
    await world.ask("r")
    await world.change(RANGE, "p", chunkSize=0, mode="")
    await world.change(REQUEST, "r", size=0, request="", description="", ipam={"namespace": ""})


async def test_a_range_made_anew_begins_anew(world: World) -> None:
    """K-102: in quick succession, under the same names."""
    for turn in range(5):
        await world.range(f"10.0.{turn}.0/24")
        await world.ask("r")
        await world.becomes("r", state=READY, cidr=f"10.0.{turn}.0/32")
        await world.delete_range()
        await world.release("r")
        await world.range_gone()


async def test_another_finalizer_keeps_the_block(world: World) -> None:
    """T22: whoever holds a request with a finalizer of its own still uses the block."""
    await world.range("10.0.0.1")
    await world.granted("r")
    hold = [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.org/in-use"}]
    await world.client.patch(REQUEST, "r", hold, world.namespace, kind=PatchKind.JSON)
    await world.delete("r")
    assert await world.granted("waiting") == "none"
    assert (await world.status("r"))["cidr"] == "10.0.0.1/32"
    free = [
        {"op": "test", "path": "/metadata/finalizers/1", "value": "example.org/in-use"},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]
    await world.client.patch(REQUEST, "r", free, world.namespace, kind=PatchKind.JSON)
    await world.becomes("waiting", state=READY, cidr="10.0.0.1/32")


async def test_every_range_is_held_before_anyone_asks(world: World) -> None:
    await world.range("10.0.0.0/24")
    await eventually(world.get_range)
    await world.held()
