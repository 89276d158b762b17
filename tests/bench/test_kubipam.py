"""kubipam's benchmark runs: the operator's own process serves what the ceiling's client wrote."""

from __future__ import annotations

import pytest
from bench.cluster import ceiling, flood, running_operator
from bench.kubipam import LOADS, scenario
from tests.support.operator import admin, install

from berth.devcluster import DevCluster
from berth.dialects.kubipam.crds import crds

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_every_load_is_served(cluster: DevCluster) -> None:
    async with admin(cluster) as client:
        await install(client, crds())
        for load in LOADS:
            assert await ceiling(client, scenario(load), 10) > 0
        async with running_operator(cluster, "kubipam") as operator:
            for load in LOADS:
                seen = await flood(client, scenario(load), 20)
                assert len(seen.bound_at) == 20
                assert seen.latency_ms(0.0) > 0
            assert operator.rss_mb() > 0
