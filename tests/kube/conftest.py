"""A client of the real API server for the tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from berth.devcluster import DevCluster
from berth.kube import auth
from berth.kube.client import Client


@pytest_asyncio.fixture
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    async with Client(auth.load(cluster.kubeconfig)) as administrator:
        yield administrator
