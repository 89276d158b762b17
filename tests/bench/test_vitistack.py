"""vitistack's benchmark: real webhooks are asked, and the API server's own histogram is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.cluster import bench_cluster

from bench import vitistack
from berth.dialects.vitistack import kinds

EDGES = (0.005, 0.025, 0.1, float("inf"))


def test_a_quantile_lies_in_its_bucket_in_proportion() -> None:
    counts = dict(zip(EDGES, (0.0, 50.0, 100.0, 100.0), strict=True))
    assert vitistack._quantile(counts, 0.5) == pytest.approx(0.025)
    assert vitistack._quantile(counts, 0.75) == pytest.approx(0.0625)


def test_only_what_came_between_two_readings_counts() -> None:
    before = {"hook": {0.025: 10.0}}
    after = {"hook": {0.025: 14.0, float("inf"): 5.0}}
    assert vitistack._between(before, after) == {"hook": {0.025: 4.0, float("inf"): 5.0}}


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
async def test_a_flood_is_admitted_by_both_webhooks_and_leaves_nothing(tmp_path: Path) -> None:
    async with bench_cluster((vitistack._pool_crd(),), durable=False) as (cluster, client):
        await vitistack._prepare(client)
        async with vitistack._api(tmp_path) as (url, _), vitistack._served(cluster, url):
            before = await vitistack._histograms(client)
            flood = await vitistack._flood(client, vitistack.Machine({"load": os.getpid()}), 40)
            asked = vitistack._between(before, await vitistack._histograms(client))
        assert flood.per_s > 0
        assert [max(asked[name].values()) for name in vitistack.WEBHOOKS] == [40, 40]
        assert not (
            await client.list(kinds.CONFIG_MAP, vitistack.OWN, label_selector=kinds.RECORD_LABEL)
        ).items
