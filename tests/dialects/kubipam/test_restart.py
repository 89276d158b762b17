"""Start and restart: what is in use is adopted before anything is granted, and nothing moves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from tests.support.kubipam import World
from tests.support.operator import CRD, admin, eventually, install, running

from berth.devcluster import DevCluster
from berth.dialects.kubipam.crds import crds
from berth.dialects.kubipam.kinds import (
    ALLOCATED,
    BUSY,
    CIDR,
    FINALIZER,
    INVALID,
    RANGE,
    READY,
    REQUEST,
    ROUND_ROBIN,
    TAKEN,
)
from berth.dialects.kubipam.leases import PRUNED
from berth.kube import meta

WRITTEN = ("annotations", "managedFields", "resourceVersion")
pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@asynccontextmanager
async def serving(cluster: DevCluster, namespace: str) -> AsyncIterator[World]:
    async with running(cluster, crds=crds(), dialects=("kubipam",)) as operator:
        yield World(operator.client, namespace)


@asynccontextmanager
async def nobody(cluster: DevCluster, namespace: str) -> AsyncIterator[World]:
    """The same world while no operator runs."""
    async with admin(cluster) as client:
        await install(client, crds())
        yield World(client, namespace)


async def set_status(world: World, resource: Any, name: str, **status: Any) -> None:
    await world.client.patch(resource, name, {"status": status}, world.namespace, subresource="status")


async def test_round_robin_goes_on_after_a_restart(cluster: DevCluster, namespace: str) -> None:
    """K-072"""
    async with serving(cluster, namespace) as world:
        await world.range("192.168.0.0/16", mode=ROUND_ROBIN)
        await world.grants([24, 24])
        await world.release("r0")
    async with serving(cluster, namespace) as world:
        assert await world.grants([24], start=2) == "192.168.2.0/24"


async def test_grants_stay_and_are_gone_around(cluster: DevCluster, namespace: str) -> None:
    """K-097"""
    async with serving(cluster, namespace) as world:
        await world.range("10.0.0.0/24")
        before = await world.grants([32, 28, 30])
    async with serving(cluster, namespace) as world:
        assert await world.grants([32, 28], start=3) == "10.0.0.1/32 10.0.0.32/28"
        after = [(await world.status(f"r{number}"))["cidr"] for number in range(3)]
    assert " ".join(after) == before


async def test_a_settled_world_is_left_alone(cluster: DevCluster, namespace: str) -> None:
    """A second pass over everything, by an operator that has just started, writes nothing."""
    async with serving(cluster, namespace) as world:
        await world.range("10.0.0.0/30")
        await world.grants([31])
        assert await world.granted("busy", size=30) == "none"
        await eventually(
            partial(remembers, world, "10.0.0.0-10.0.0.1")
        )  # written after the grant, in its own time
        before = await versions(world, "p", "r0", "busy")
    async with serving(cluster, namespace) as world:
        await world.range("10.1.0.0/30", name="q")
        await world.granted("last", range="q")
        assert await versions(world, "p", "r0", "busy") == before


async def remembers(world: World, taken: str) -> bool:
    """The range says in its annotation what is taken, for a backup of objects."""
    text = meta.annotations(await world.get_range()).get(TAKEN, "{}")
    return bool(json.loads(text) == {world.namespace: taken})


async def versions(world: World, range: str, *requests: str) -> list[str]:
    found = [await world.get_range(range), *[await world.get(name) for name in requests]]
    return [one["metadata"]["resourceVersion"] for one in found]


async def test_an_installation_of_upstream_is_adopted(cluster: DevCluster, namespace: str) -> None:
    """Its requests' `status.cidr` are the only record: on the page before anything is granted. Once each
    request gets what upstream did not write, in metadata and in the status, and nothing ever again."""
    async with nobody(cluster, namespace) as world:
        await world.range("10.0.0.0/29", "10.0.9.0/30")
        await set_status(world, RANGE, "p", state=READY)
        for name, cidr in (("a", "10.0.0.0/31"), ("b", "10.0.0.3/32"), ("outside", "10.7.0.0/24")):
            await world.ask(name)
            finalizers = {"metadata": {"finalizers": [FINALIZER]}}
            await world.client.patch(REQUEST, name, finalizers, namespace)
            await set_status(world, REQUEST, name, cidr=cidr, state=READY)
        before = [await world.get(name) for name in ("a", "b", "outside")]
        await world.ask("half")  # upstream was killed between its two updates
        await set_status(world, REQUEST, "half", cidr="10.0.0.2/32")
    async with serving(cluster, namespace) as world:
        await world.becomes("half", state=READY, cidr="10.0.0.2/32")
        page = ["10.0.0.0-10.0.0.3", "10.7.0.0-10.7.0.255"]
        await world.range_becomes(taken=page, state=READY)
        assert await world.grants([30, 30, 30]) == "10.0.9.0/30 10.0.0.4/30 none"
        completed = [await eventually(partial(ready_by_condition, world, one)) for one in before]
        assert [as_upstream_left_it(one) for one in completed] == [as_upstream_left_it(one) for one in before]
        for one in completed:
            assert meta.annotations(one) == {CIDR: one["status"]["cidr"]}
            assert one["status"]["range"] == f"{namespace}/p"
        await world.release("outside")
        await world.range_becomes(taken=["10.0.0.0-10.0.0.7", "10.0.9.0-10.0.9.3"])
        assert await world.granted("last") == "none"
        assert [await world.get(name) for name in ("a", "b")] == completed[:2]


async def ready_by_condition(world: World, before: dict[str, Any]) -> dict[str, Any]:
    found = await world.get(before["metadata"]["name"])
    ready = meta.condition(found, "Ready")
    return found if ready is not None and ready["reason"] == ALLOCATED else {}


def as_upstream_left_it(request: dict[str, Any]) -> dict[str, Any]:
    """Without what we add: the annotation in metadata, range and conditions in the status."""
    about = {key: value for key, value in request["metadata"].items() if key not in WRITTEN}
    status = {key: value for key, value in request["status"].items() if key not in ("range", "conditions")}
    return {**request, "metadata": about, "status": status}


async def test_what_upstream_granted_twice_goes_to_no_third(cluster: DevCluster, namespace: str) -> None:
    """Both keep what they show; it is free when the last of them has gone."""
    async with nobody(cluster, namespace) as world:
        await world.range("10.0.0.0/30")
        for name, cidr in (("a", "10.0.0.0/31"), ("b", "10.0.0.1/32")):
            await world.ask(name)
            await world.client.patch(REQUEST, name, {"metadata": {"finalizers": [FINALIZER]}}, namespace)
            await set_status(world, REQUEST, name, cidr=cidr, state=READY)
    async with serving(cluster, namespace) as world:
        assert await world.grants([32, 32, 32]) == "10.0.0.2/32 10.0.0.3/32 none"
        await world.release("a")
        await world.becomes("r2", state=READY, cidr="10.0.0.0/32")
        assert await world.granted("more") == "none"
        await world.release("b")
        await world.becomes("more", state=READY, cidr="10.0.0.1/32")


async def test_a_range_that_is_invalid_at_the_start(cluster: DevCluster, namespace: str) -> None:
    """K-099: upstream crashed in a loop."""
    async with nobody(cluster, namespace) as world:
        await world.range("nonsense")
        await world.ask("r")
        await set_status(world, REQUEST, "r", cidr="10.0.0.0/32", state=READY)
    async with serving(cluster, namespace) as world:
        await world.range_becomes(state=INVALID)
        await world.ask("new")
        assert (await world.answered("new"))["state"] == INVALID
        assert (await world.status("r"))["cidr"] == "10.0.0.0/32"
        assert (await world.status("r"))["state"] == READY
        await world.release("r")


async def test_a_block_outside_of_its_range_is_let_go(cluster: DevCluster, namespace: str) -> None:
    """K-098"""
    async with nobody(cluster, namespace) as world:
        await world.range("10.0.0.0/30")
        await world.ask("r")
        await world.client.patch(REQUEST, "r", {"metadata": {"finalizers": [FINALIZER]}}, namespace)
        await set_status(world, REQUEST, "r", cidr="10.9.9.9/32", state=READY)
    async with serving(cluster, namespace) as world:
        await world.range_becomes(taken=["10.9.9.9"])
        assert (await world.status("r"))["state"] == READY
        await world.release("r")
        await world.range_becomes(taken=[])


async def test_a_grant_that_a_crash_cut_in_half_is_delivered(cluster: DevCluster, namespace: str) -> None:
    """K-101: the page was written, the request's status was not. The next operator delivers that block."""
    async with nobody(cluster, namespace) as world:
        await world.range("10.0.0.0/29")
        created = await world.ask("r")
        await world.client.patch(REQUEST, "r", {"metadata": {"finalizers": [FINALIZER]}}, namespace)
        uid = created["metadata"]["uid"]
        await set_status(world, RANGE, "p", taken=["10.0.0.4"], pending=[f"{uid} 10.0.0.4/32"])
    async with serving(cluster, namespace) as world:
        await world.becomes("r", state=READY, cidr="10.0.0.4/32")
        assert await world.granted("next") == "10.0.0.0/32"
        status = (await world.get_range())["status"]
        assert status["taken"] == ["10.0.0.0", "10.0.0.4"]
        assert all(uid not in entry for entry in status.get("pending") or ())


async def test_a_release_that_a_crash_cut_in_half_frees_only_once(
    cluster: DevCluster, namespace: str
) -> None:
    """Contract 6.8: the block left the page and is another's by now; the request still shows it."""
    async with nobody(cluster, namespace) as world:
        await world.range("10.0.0.0/29")
        old = await world.ask("old", request="10.0.0.1")
        finalizers = {"metadata": {"finalizers": [FINALIZER]}}
        await world.client.patch(REQUEST, "old", finalizers, namespace)
        await set_status(world, REQUEST, "old", cidr="10.0.0.1/32", state=READY)
        await world.delete("old")
        await world.ask("new")
        await world.client.patch(REQUEST, "new", finalizers, namespace)
        await set_status(world, REQUEST, "new", cidr="10.0.0.1/32", state=READY)
        await set_status(world, RANGE, "p", taken=["10.0.0.1"], released=[old["metadata"]["uid"]])
    async with serving(cluster, namespace) as world:
        await world.ask("third", request="10.0.0.1")
        await world.refused("third", BUSY, "10.0.0.1/32 already busy")
        await world.range_becomes(taken=["10.0.0.1"])
        assert await world.granted("fourth") == "10.0.0.0/32"
        await world.range_becomes(taken=["10.0.0.0-10.0.0.1"], released=None)


async def test_a_page_that_cannot_be_read_stops_its_range_only(cluster: DevCluster, namespace: str) -> None:
    """Nothing is granted from a range whose record someone spoilt; others go on."""
    async with nobody(cluster, namespace) as world:
        await world.range("10.0.0.0/29")
        await world.range("10.1.0.0/29", name="q")
        await set_status(world, RANGE, "p", taken=["what?"])
    async with serving(cluster, namespace) as world:
        await world.ask("r")
        assert await world.granted("s", range="q") == "10.1.0.0/32"
        status = await world.answered("r")
        assert status["state"] == INVALID
        assert "cannot be read" in status["message"]
        await set_status(world, RANGE, "p", taken=[])
        await world.becomes("r", state=READY, cidr="10.0.0.0/32")


async def test_a_record_that_was_wiped_is_made_anew(cluster: DevCluster, namespace: str) -> None:
    """Upstream's controller drops fields it does not know; the requests still say what is in use."""
    async with serving(cluster, namespace) as world:
        await world.range("10.0.0.0/29")
        await world.grants([32, 32])
        await set_status(world, RANGE, "p", taken=None, pending=None, released=None)
        await world.range_becomes(taken=["10.0.0.0-10.0.0.1"])
        assert await world.grants([32], start=2) == "10.0.0.2/32"


# A CRD that does not know the record

UPSTREAMS = ("taken", "pending", "released", "edition")  # what its CRD lacks
OLDER = ("edition",)


@asynccontextmanager
async def crd_without(world: World, fields: tuple[str, ...]) -> AsyncIterator[None]:
    """The range's CRD drops these fields of a status; in the end it is whole again."""
    whole = next(crd for crd in crds() if crd["spec"]["names"]["kind"] == RANGE.kind)
    older = deepcopy(whole)
    for field in fields:
        del _status_fields(older)[field]
    await world.range("10.9.9.0/29", name="probe")
    try:
        await apply(world, older)
        await eventually(partial(_keeps, world, "edition", False))
        yield
    finally:
        await apply(world, whole)
        await eventually(partial(_keeps, world, "edition", True))


async def apply(world: World, crd: dict[str, Any]) -> None:
    await world.client.patch(CRD, crd["metadata"]["name"], {"spec": crd["spec"]})


def _status_fields(crd: dict[str, Any]) -> dict[str, Any]:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["status"]["properties"]
    return found


async def _keeps(world: World, field: str, kept: bool) -> bool:
    await set_status(world, RANGE, "probe", **{field: "x"})
    status = (await world.get_range("probe")).get("status") or {}
    return (field in status) is kept


@pytest.mark.parametrize("fields", [UPSTREAMS, OLDER])
async def test_a_crd_that_drops_the_record_is_told_and_nothing_is_granted(
    cluster: DevCluster, namespace: str, fields: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helm leaves a CRD alone that is there already. When Berth's is applied everyone is served."""
    monkeypatch.setattr("berth.dialects.kubipam.pools.CRD_SECONDS", 0.5)
    async with running(cluster, crds=crds(), dialects=("kubipam",), namespace=namespace) as operator:
        world = World(operator.client, namespace)
        async with crd_without(world, fields):
            await world.range("10.0.0.0/29")
            await world.ask("r")
            await world.range_becomes(state=INVALID, message=PRUNED)
            await world.refused("r", INVALID, f"IPAMRange {namespace}/p not valid: {PRUNED}")
            await world.ask("gone")
            await world.release("gone")
        await world.becomes("r", state=READY, cidr="10.0.0.0/32", message=None)
        await world.range_becomes(state=READY, message=None, taken=["10.0.0.0"])
        assert await world.granted("next") == "10.0.0.1/32"
        await world.range_becomes("probe", state=READY, message=None, taken=[])
