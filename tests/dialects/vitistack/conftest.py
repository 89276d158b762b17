"""One API, one operator with webhooks and one stand-in for MetalLB per module; a namespace per test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.vitistack import Api, World, emptied, fresh, prepared, served

from berth.devcluster import DevCluster


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with served(cluster, tmp_path_factory.mktemp("api")) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="session")
async def world(stage: World) -> AsyncIterator[World]:
    world = await fresh(stage)
    yield world
    await emptied(world)


@pytest.fixture
def api_flags() -> tuple[str, ...]:
    """What a module's own API is started with beyond the usual."""
    return ()


@pytest_asyncio.fixture(loop_scope="session")
async def bare(cluster: DevCluster, tmp_path: Path, api_flags: tuple[str, ...]) -> AsyncIterator[World]:
    """A cluster and an API without an operator: tests start and stop it themselves."""
    api = Api(tmp_path, api_flags)
    async with prepared(cluster) as client:
        api.start()
        world = await fresh(World(client, api, ""))
        yield world
        await emptied(world)
        api.stop()
