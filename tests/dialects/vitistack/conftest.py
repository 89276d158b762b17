"""One API, one operator with webhooks and one stand-in for MetalLB per module; a namespace per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.vitistack import World, emptied, fresh, served

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
