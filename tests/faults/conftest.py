"""One control plane and one administrator's client for a worker's fault rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.faults.killing import KillBench
from tests.support.operator import admin, crds_of, install

from berth.devcluster import DevCluster
from berth.kube.client import Client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    async with admin(cluster) as administrator:
        await install(administrator, crds_of("metal3", "kubipam", "vip"))
        yield administrator


@pytest.fixture
def bench(cluster: DevCluster, client: Client, tmp_path: Path) -> KillBench:
    return KillBench(cluster, client, tmp_path)
