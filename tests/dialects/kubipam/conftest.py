"""One operator per module, one namespace per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support.kubipam import World
from tests.support.operator import Operator, running

from berth.devcluster import DevCluster
from berth.dialects.kubipam.crds import crds


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    async with running(cluster, crds=crds(), dialects=("kubipam",)) as started:
        yield started


@pytest.fixture
def world(operator: Operator, namespace: str) -> World:
    return World(operator.client, namespace)
