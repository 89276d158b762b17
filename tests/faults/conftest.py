"""One control plane and one administrator's client for a worker's fault rows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio
from tests.faults.stage import Stage
from tests.support.operator import admin, crds_of, install

from berth.devcluster import DevCluster
from berth.kube.client import Client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    async with admin(cluster) as administrator:
        await install(administrator, crds_of("metal3", "kubipam", "vip"))
        yield administrator


@pytest.fixture
def stage(cluster: DevCluster, client: Client, tmp_path: Path, seed: int) -> Stage:
    return Stage(cluster, client, tmp_path, Random(seed))
