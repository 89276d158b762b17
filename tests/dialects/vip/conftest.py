"""One operator per module without webhooks, and a world of its own per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.support.cluster import drop_namespace, make_namespace
from tests.support.operator import Operator, running
from tests.support.vip import World

from berth.devcluster import DevCluster
from berth.dialects.vip.crds import crds


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    async with running(cluster, crds=crds(), dialects=("vip",)) as operator:
        yield operator


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster, operator: Operator) -> AsyncIterator[World]:
    namespace = await make_namespace(cluster)
    world = World(operator.client, namespace)
    yield world
    await world.clear()
    for name in (namespace, *world.namespaces):
        await drop_namespace(cluster, name)
