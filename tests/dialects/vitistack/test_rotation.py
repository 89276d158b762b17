"""T26: a secret's replacement with calls lost, before and after their effect. (Killed: test_kills.py.)"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.killing import API_PENDING, PENDING_SECONDS
from tests.support.line import Fate, at_call, let_through, line
from tests.support.operator import eventually
from tests.support.vitistack import Api, World, address_of, emptied, fresh, operating, prepared

from berth.devcluster import DevCluster
from berth.errors import StatusError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
NAMES = [f"web-{number}" for number in range(5)]


async def rotate(world: World, name: str) -> None:
    with suppress(StatusError):  # refused, or done: both are fine, half done is not
        await world.annotate(name, secret="my-secret")


async def holds(world: World, name: str) -> None:
    """Whichever secret it is now, one is accepted for both addresses."""

    async def is_amended() -> bool:
        await world.annotate(name, deny_external_cleanup="true")
        return True

    assert await eventually(is_amended, 60)
    addresses = address_of(await world.get(name)).split(",")

    async def is_known() -> bool:
        """The controller, which makes sure of the replacement, may send older terms before these."""
        entries = [world.api.entries(address)[name] for address in addresses]
        return all(entry.active and entry.deny for entry in entries)

    assert await eventually(is_known, 60)
    await world.delete(name)


async def test_a_rotation_cut_at_every_call_leaves_one_owner(
    cluster: DevCluster, tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T26, T14: 50 rotations of dual Services, five at a time: each owns both its addresses, then none."""
    api = Api(tmp_path, API_PENDING)
    api.start()
    try:
        async with (
            prepared(cluster) as client,
            line(api.url) as (wire, url),
            operating(cluster, api, api_url=url, vitistack_pending_seconds=PENDING_SECONDS),
        ):
            for number in range(1, 6):
                for fate in (Fate.CUT, Fate.LOSE):
                    world = await fresh(World(client, api, ""))
                    await world.secret()
                    await asyncio.gather(
                        *(world.create(name, annotations={"ip-family": "dual"}) for name in NAMES)
                    )
                    wire.calls, wire.before = 0, at_call(number, fate)
                    await asyncio.gather(*(rotate(world, name) for name in NAMES))
                    wire.before = let_through
                    await asyncio.gather(*(holds(world, name) for name in NAMES))

                    async def is_released(world: World = world) -> bool:
                        return not api.of_namespace(world.namespace_id)

                    assert await eventually(is_released, 60), (number, fate)
                    await emptied(world)
                    tried(len(NAMES))
    finally:
        api.stop()
