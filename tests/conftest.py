"""Fixtures every test may ask for. Those on the real control plane start it once per worker, on first use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.cluster import Kubectl, drop_namespace, make_namespace

from berth.devcluster import DevCluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster() -> AsyncIterator[DevCluster]:
    """Shared: a test that kills or restarts parts of it waits until they serve again."""
    async with DevCluster() as shared:
        yield shared


@pytest.fixture
def kubectl(cluster: DevCluster) -> Kubectl:
    return Kubectl(cluster)


@pytest_asyncio.fixture
async def namespace(cluster: DevCluster) -> AsyncIterator[str]:
    """The name of a namespace of this test's own."""
    name = await make_namespace(cluster)
    yield name
    await drop_namespace(cluster, name)
