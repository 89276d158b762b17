"""`berth bench vitistack`: Services admitted a second with both webhooks, beside the same API server without.

Each Service costs an inner dry run, two calls of the IPAM-API (SQLite), a record and its share of a pool
write. Latencies are the API server's own: its histogram of each webhook, read before and after.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from berth.bench.cluster import IN_FLIGHT, bench_cluster, collect, running_operator
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.kube.client import Client

Object = dict[str, Any]
METALLB = "metallb-system"
WEBHOOKS = ("mservice-v1.kb.io", "vservice-v1.kb.io")
STEADY, PER_SECOND = 400, 20.0
BUCKET = re.compile(
    r"^apiserver_admission_webhook_admission_duration_seconds_bucket\{(.*)\} (\S+)$", re.MULTILINE
)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def run(sizes: tuple[int, ...] = (200, 1000)) -> Iterator[Object]:
    return collect(_run(sizes))


async def _run(sizes: tuple[int, ...]) -> AsyncIterator[Object]:
    async with bench_cluster((_pool_crd(),)) as (cluster, client):
        await _prepare(client)
        # Of a class that is not ours: the operator, started later, leaves them alone.
        ceilings = [await _flood(client, n, "bench.example/none") for n in sizes]
        async with _served(cluster) as operator:
            await _flood(client, 20)
            for n, ceiling in zip(sizes, ceilings, strict=True):
                before = operator.cpu_seconds()
                rate = await _flood(client, n)
                yield {
                    "bench": "vitistack",
                    "n": n,
                    "per_s": round(rate, 1),
                    "ceiling_per_s": round(ceiling, 1),
                    "ratio": round(rate / ceiling, 3),
                    "cpu_s_per_1000": round((operator.cpu_seconds() - before) / n * 1000, 2),
                    "rss_mb": round(operator.rss_mb(), 1),
                }
            async for line in _steady(client):
                yield line


async def _flood(client: Client, n: int, load_class: str = "") -> float:
    namespace = await _namespace(client)
    numbers = iter(range(n))

    async def worker() -> None:
        for number in numbers:
            await client.create(kinds.SERVICE, _service(number, load_class), namespace)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return n / (time.perf_counter() - started)


async def _steady(client: Client) -> AsyncIterator[Object]:
    namespace = await _namespace(client)
    before = await _histograms(client)
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(STEADY):
            await asyncio.sleep(max(0.0, started + number / PER_SECOND - time.perf_counter()))
            group.create_task(client.create(kinds.SERVICE, _service(number), namespace))
    after = await _histograms(client)
    for name in WEBHOOKS:
        counts = {edge: after[name][edge] - before[name].get(edge, 0.0) for edge in after[name]}
        yield {
            "bench": f"vitistack-steady-{name}",
            "n": STEADY,
            "per_s": PER_SECOND,
            "p50_ms": round(_quantile(counts, 0.5) * 1000, 1),
            "p99_ms": round(_quantile(counts, 0.99) * 1000, 1),
        }


async def _histograms(client: Client) -> dict[str, dict[float, float]]:
    """Cumulative counts by upper edge in seconds, dry runs included: they are ours to answer, too."""
    found: dict[str, dict[float, float]] = {name: {} for name in WEBHOOKS}
    for match in BUCKET.finditer(str(await client.raw("GET", "/metrics"))):
        labels = dict(LABEL.findall(match.group(1)))
        if labels.get("name") in found:
            edge = float(labels["le"].replace("+Inf", "inf"))
            counts = found[labels["name"]]
            counts[edge] = counts.get(edge, 0.0) + float(match.group(2))
    return found


def _quantile(counts: dict[float, float], share: float) -> float:
    """Between the edges of its bucket, in proportion, as Prometheus reckons it."""
    edges = sorted(counts)
    wanted = counts[edges[-1]] * share
    low, below = 0.0, 0.0
    for edge in edges:
        if counts[edge] >= wanted:
            inside = counts[edge] - below
            return low if edge == float("inf") else low + (edge - low) * ((wanted - below) / (inside or 1.0))
        low, below = edge, counts[edge]
    return low


@asynccontextmanager
async def _served(cluster: DevCluster) -> AsyncIterator[Any]:
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        async with (
            _api(Path(folder)) as url,
            running_operator(
                cluster,
                "vitistack",
                *("--api-url", f"{url}/v2", "--webhook-url", f"https://127.0.0.1:{_free_port()}"),
                *("--vitistack-zone", "hnet-private", "--log-level", "info"),
            ) as operator,
        ):
            yield operator


@asynccontextmanager
async def _api(folder: Path) -> AsyncIterator[str]:
    """`berth api` as a process of its own, on SQLite."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "berth.cli.main", "api", "--listen", "127.0.0.1:0"),
        *("--database", f"sqlite:///{folder}/berth.db", "--log-level", "warning"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        if "listening on" not in line:
            raise RuntimeError("the IPAM-API did not start")
        yield line.split()[-1]
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _prepare(client: Client) -> None:
    for name in (METALLB, "ipam-system"):
        await client.create(kinds.NAMESPACE, _named("Namespace", name))
    labels = {"app": "metallb", "component": "controller"}
    pod = {
        **_named("Pod", "controller"),
        "spec": {"containers": [{"name": "controller", "image": "controller"}]},
    }
    pod["metadata"]["labels"] = labels
    await client.create(kinds.POD, pod, METALLB)
    ready = [{"type": "Ready", "status": "True"}]
    status = {"status": {"phase": "Running", "conditions": ready}}
    await client.patch(kinds.POD, "controller", status, METALLB, subresource="status")


async def _namespace(client: Client) -> str:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "bench-vitistack-"}}
    return str((await client.create(kinds.NAMESPACE, body))["metadata"]["name"])


def _service(number: int, load_class: str = "") -> Object:
    ports = [{"protocol": "TCP", "port": 80, "targetPort": 100}]
    # Node ports are few: thousands of Services would be a benchmark of running out of them.
    spec: Object = {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False}
    if load_class:
        spec["loadBalancerClass"] = load_class
    return {**_named("Service", f"web-{number}"), "spec": spec}


def _named(kind: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def _pool_crd() -> Object:
    spec = {
        "type": "object",
        "properties": {
            "addresses": {"type": "array", "items": {"type": "string"}},
            "autoAssign": {"type": "boolean"},
            "avoidBuggyIPs": {"type": "boolean"},
        },
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ipaddresspools.metallb.io"},
        "spec": {
            "group": "metallb.io",
            "scope": "Namespaced",
            "names": {"kind": "IPAddressPool", "plural": "ipaddresspools", "singular": "ipaddresspool"},
            "versions": [version],
        },
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    import orjson

    wanted = tuple(int(word) for word in sys.argv[1:]) or (200, 1000)
    for line in run(wanted):
        print(orjson.dumps(line).decode(), flush=True)
