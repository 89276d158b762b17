"""One control plane and one administrator's client for a worker's fault rows; the seed of the run."""

from __future__ import annotations

import os
import secrets
import sys
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="repeat a run of the fault bench")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """`--seed` or BERTH_SEED repeats a run; it is printed, and a failing test shows the seed it had."""
    told = request.config.getoption("--seed", default=None)
    number = told if told is not None else int(os.environ.get("BERTH_SEED") or secrets.randbelow(1 << 32))
    sys.stdout.write(f"seed {number}\n")
    return int(number)


@pytest.fixture
def stage(cluster: DevCluster, client: Client, tmp_path: Path, seed: int) -> Stage:
    return Stage(cluster, client, tmp_path, Random(seed))
