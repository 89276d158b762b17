"""A backup of objects brings them back without status and with new UIDs: everybody has his block again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import Kubectl, drop_namespace, make_namespace
from tests.support.kubipam import World
from tests.support.operator import admin, eventually, install, running
from tests.support.restoring import export, restore, wipe

from berth.devcluster import DevCluster
from berth.dialects.kubipam.crds import crds
from berth.dialects.kubipam.kinds import BUSY, CIDR, RANGE, READY, REQUEST, TAKEN

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]
KINDS = (RANGE, REQUEST)


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster) -> AsyncIterator[World]:
    async with admin(cluster) as client:
        await install(client, crds())
        world = World(client, await make_namespace(cluster))
        yield world
        await wipe(client, KINDS, world.namespace)
        await drop_namespace(cluster, world.namespace)


async def backup(world: World, kubectl: Kubectl, names: str) -> tuple[dict[str, Object], dict[str, str]]:
    """Requests in a range of four by name, served and released so that the order does not tell who has what;
    the files of it all; and who has what. Nothing of it is left in the cluster."""
    async with running(kubectl.cluster, crds=crds(), dialects=("kubipam",)):
        await world.range("10.0.0.0/30")
        await world.granted("gone")
        had = {name: await world.granted(name) for name in names}
        await world.release("gone")
        await eventually(partial(is_remembered, world, set(had.values())))
    files = {one["metadata"]["name"]: one for one in await export(kubectl, KINDS, world.namespace)}
    await wipe(world.client, KINDS, world.namespace)
    return files, had


async def is_remembered(world: World, blocks: set[str]) -> bool:
    text = ((await world.get_range())["metadata"].get("annotations") or {}).get(TAKEN, "{}")
    assert json.loads(text) == {world.namespace: _merged(blocks)}, text
    return True


def _merged(blocks: set[str]) -> str:
    first, *rest = sorted(block.removesuffix("/32") for block in blocks)
    return f"{first}-{rest[-1]}" if rest else first


async def have(world: World, had: dict[str, str]) -> bool:
    now = {name: (await world.status(name)).get("cidr") for name in had}
    assert now == had
    return True


@pytest.mark.parametrize("order", ["p a b c", "c b a p", "b p c a"])
async def test_an_operator_that_runs_gives_everybody_his_own_in_whatever_order_they_come(
    world: World, kubectl: Kubectl, order: str
) -> None:
    files, had = await backup(world, kubectl, "abc")
    async with running(kubectl.cluster, crds=crds(), dialects=("kubipam",)):
        for name in order.split():
            await restore(kubectl, [files[name]])
            await asyncio.sleep(0.2)
        await eventually(partial(have, world, had))
        assert await world.granted("new") == "10.0.0.0/32"


async def test_an_operator_that_starts_afterwards_serves_newcomers_last(
    world: World, kubectl: Kubectl
) -> None:
    """Although they are older here than those who came back."""
    files, had = await backup(world, kubectl, "abc")
    for name in ("new", "newer"):
        await world.ask(name)
    await asyncio.sleep(1.1)  # creation times are in seconds
    await restore(kubectl, files.values())
    async with running(kubectl.cluster, crds=crds(), dialects=("kubipam",)):
        await eventually(partial(have, world, had))
        states = sorted([(await world.answered(name))["state"] for name in ("new", "newer")])
        assert states == [BUSY, READY]


async def test_nobody_gets_what_waits_for_those_who_are_not_back_yet(world: World, kubectl: Kubectl) -> None:
    """And the range says how much that is."""
    files, had = await backup(world, kubectl, "abc")
    async with running(kubectl.cluster, crds=crds(), dialects=("kubipam",)):
        await restore(kubectl, [files["p"], files["b"]])
        assert await world.granted("new") == "10.0.0.0/32"
        assert await world.granted("newer") == "none"
        await eventually(partial(have, world, {"b": had["b"]}))
        counts = {"total": 4, "used": 2, "free": 0, "reserved": 2}
        await world.range_becomes(addresses=counts, kept=["10.0.0.1", "10.0.0.3"])
        await restore(kubectl, [files["c"], files["a"]])
        await eventually(partial(have, world, had))
        await world.range_becomes(addresses={**counts, "used": 4, "reserved": 0}, kept=None)


async def test_a_range_that_comes_back_without_its_memory_still_serves_those_who_remember(
    world: World, kubectl: Kubectl
) -> None:
    """From a repository, say: who is there when the range is taken up comes before who is new."""
    files, had = await backup(world, kubectl, "abc")
    await world.ask("new")
    await restore(kubectl, [files[name] for name in "abc"])
    del files["p"]["metadata"]["annotations"]
    await restore(kubectl, [files["p"]])
    async with running(kubectl.cluster, crds=crds(), dialects=("kubipam",)):
        await eventually(partial(have, world, had | {"new": "10.0.0.0/32"}))


async def test_the_block_is_written_with_the_finalizer(world: World, kubectl: Kubectl) -> None:
    """No write more for it: a request that is served at once has two."""
    async with running(kubectl.cluster, crds=crds(), dialects=("kubipam",)):
        await world.range("10.0.0.0/30")
        await world.range_becomes(state=READY)
        seen: list[str] = []
        created = await world.ask("r")
        version = created["metadata"]["resourceVersion"]
        await world.becomes("r", state=READY)
        watch = world.client.watch(REQUEST, world.namespace, resource_version=version, timeout_seconds=30.0)
        async for event in watch:
            status = event.object.get("status") or {}
            about = event.object["metadata"]
            seen.append(f"{about.get('annotations', {}).get(CIDR)} {status.get('cidr')}")
            if status.get("cidr"):
                break
        assert seen == ["10.0.0.0/32 None", "10.0.0.0/32 10.0.0.0/32"]
