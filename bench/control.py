"""`berth bench control`: start-up with many objects, and what a pass over a settled world costs.

The world is made by the operator itself: N claims with their addresses. Then a fresh operator starts; from
its start to `serving` is the start-up, and its first pass over every claim is the settled pass, which must
make no request at all: the API server's own counters are asked.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

from bench.cluster import OperatorProcess, bench_cluster, collect, flood, running_operator
from bench.metal3 import native_scenario
from berth.dialects.metal3.crds import crds
from berth.kube.client import Client

Object = dict[str, Any]
# Every request about what the operator serves, and its Events; but watches, which stay open, and what the API
# server asks of itself (its own lease, the addresses of Services).
COUNTED = re.compile(
    r'^apiserver_request_total\{[^}]*(?:group="ipam\.[a-z0-9.-]+"|resource="events")'
    r'[^}]*verb="(?!WATCH)[A-Z]+"[^}]*\} (\S+)',
    re.M,
)
SETTLE_SECONDS = 5.0


def run(objects: int = 10_000) -> Iterator[Object]:
    return collect(_run(objects // 2))


async def _run(claims: int) -> AsyncIterator[Object]:
    scenario = native_scenario()
    async with bench_cluster(crds(), durable=False) as (cluster, client):
        async with running_operator(cluster, scenario.dialect):
            await flood(client, scenario, claims)
            await asyncio.sleep(SETTLE_SECONDS)  # the pool's status, which is written about once a second
        requests = await _requests(client)
        started = time.perf_counter()
        async with running_operator(cluster, scenario.dialect) as operator:
            ready_seconds = time.perf_counter() - started
            lists = await _requests(client) - requests
            cpu = await _quiet(operator)
            yield {
                "bench": "control-start",
                "n": claims * 2,
                "ready_s": round(ready_seconds, 2),
                "list_requests": lists,
                "rss_mb": round(operator.rss_mb(), 1),
            }
            yield {
                "bench": "control-settled",
                "n": claims,
                "requests": await _requests(client) - requests - lists,
                "cpu_s_per_1000": round(cpu / claims * 1000, 3),
                "per_s": round(claims / cpu, 1) if cpu else 0.0,
            }


async def _quiet(operator: OperatorProcess) -> float:
    """CPU from serving until the process has nothing left to do."""
    before = last = operator.cpu_seconds()
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 2.0:
        await asyncio.sleep(0.1)
        now = operator.cpu_seconds()
        if now - last > 0.02:
            quiet_since = time.monotonic()
            last = now
    return last - before


async def _requests(client: Client) -> int:
    page = await client.raw("GET", "/metrics")
    text = page if isinstance(page, str) else bytes(page).decode()
    return int(sum(float(match.group(1)) for match in COUNTED.finditer(text)))


if __name__ == "__main__":
    import sys

    import orjson

    for line in run(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000):
        print(orjson.dumps(line).decode(), flush=True)
