"""`berth bench vitistack`: Services admitted a second with both webhooks, beside the same API server without.

Each Service costs an inner dry run, two reviews, and its share of the IPAM-API's calls (SQLite), of a
record and of a pool write. The rates are taken in turn, the ceiling before and after, each with no other
Services in the cluster: the API server itself gets slower with each one it has. `rehearsed_per_s` is the
ceiling's rate where its client makes the dry run itself before each create: what a webhook that costs
nothing would leave. CPU is counted while Services are created, not while they go again: `cpu_ms` is
milliseconds a Service for each process with webhooks, `busy` the share of all cores that these processes
had together (near 1: the machine is the limit, else they wait for each other). Latencies are the API
server's own: its histogram of each webhook, read before and after. It has edges at 5, 25 and 100 ms, and
`within_25_ms` is the one thing that it tells exactly.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster import (
    IN_FLIGHT,
    STEADY_ROUNDS,
    WARM,
    OperatorProcess,
    bench_cluster,
    collect,
    cpu_seconds,
    running_operator,
)
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.mutate import BRIEFLY, TRYING
from berth.kube.client import Client

Object = dict[str, Any]
Histograms = dict[str, dict[float, float]]  # by webhook: cumulative counts by upper edge in seconds
METALLB, OWN = "metallb-system", "ipam-system"
WEBHOOKS = ("mservice-v1.kb.io", "vservice-v1.kb.io")
STEADY, PER_SECOND = 400, 20.0
EDGE = 0.025
ROUNDS, SETTLE_SECONDS = 5, 120.0
BUCKET = re.compile(
    r"^apiserver_admission_webhook_admission_duration_seconds_bucket\{(.*)\} (\S+)$", re.MULTILINE
)
LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Machine:
    """The processes that share it, by name."""

    pids: dict[str, int]

    def cpu(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self.pids.items()}


@dataclass(frozen=True, slots=True)
class Flood:
    per_s: float
    cpu_ms: dict[str, float]  # a Service
    busy: float


def run(sizes: tuple[int, ...] = (200, 1000)) -> Iterator[Object]:
    return collect(_run(sizes))


async def _run(sizes: tuple[int, ...]) -> AsyncIterator[Object]:
    async with bench_cluster((_pool_crd(),)) as (cluster, client):
        await _prepare(client)
        with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
            async with _api(Path(folder)) as (url, api):
                plane = {"kube-apiserver": cluster.apiserver.pid, "etcd": cluster.etcd.pid}
                pids = {name: pid for name, pid in plane.items() if pid is not None}
                machine = Machine({**pids, "ipam-api": api, "load": os.getpid()})
                for n in sizes:
                    yield await _measure(cluster, client, (url, machine), n)
                yield await _plainly(client)
                async with _served(cluster, url):
                    async for line in _steady(client):
                        yield line


async def _measure(cluster: DevCluster, client: Client, there: tuple[str, Machine], n: int) -> Object:
    rates, tops, rehearsed, floods, memory = [], [], [], [], 0.0
    url, machine = there
    for _ in range(ROUNDS):
        before = await _flood(client, machine, n)
        rehearsed.append((await _flood(client, machine, n, rehearse=True)).per_s)
        async with _served(cluster, url) as operator:
            served = Machine({**machine.pids, "operator": operator.process.pid})
            await _flood(client, served, WARM)
            floods.append(await _flood(client, served, n))
            rates.append(floods[-1].per_s)
            memory = max(memory, operator.rss_mb())
        tops.append(statistics.mean((before.per_s, (await _flood(client, machine, n)).per_s)))
    costs = {name: statistics.median(one.cpu_ms[name] for one in floods) for name in floods[0].cpu_ms}
    return {
        "bench": "vitistack",
        "n": n,
        "per_s": round(statistics.median(rates), 1),
        "ceiling_per_s": round(statistics.median(tops), 1),
        "ratio": round(statistics.median(r / t for r, t in zip(rates, tops, strict=True)), 3),
        "rehearsed_per_s": round(statistics.median(rehearsed), 1),
        "cpu_s_per_1000": round(costs["operator"], 2),
        "cpu_ms": {name: round(cost, 2) for name, cost in costs.items()},
        "busy": round(statistics.median(one.busy for one in floods), 2),
        "rss_mb": round(memory, 1),
        "rounds": len(rates),
    }


async def _flood(client: Client, machine: Machine, n: int, *, rehearse: bool = False) -> Flood:
    """Services as fast as the server takes them; none of them is left when it returns."""
    namespace = await _namespace(client)

    async def create(number: int) -> None:
        service = _service(number)
        if rehearse:
            path = kinds.SERVICE.path(namespace)
            await client.raw("POST", path, body=service, params=TRYING, headers=BRIEFLY)
        await client.create(kinds.SERVICE, service, namespace)

    started, before = time.perf_counter(), machine.cpu()
    await _each(n, create)
    seconds = time.perf_counter() - started
    used = {name: now - before[name] for name, now in machine.cpu().items()}
    await _each(n, lambda number: client.delete(kinds.SERVICE, f"web-{number}", namespace))
    await _released(client)
    busy = sum(used.values()) / seconds / (os.cpu_count() or 1)
    return Flood(n / seconds, {name: spent / n * 1000 for name, spent in used.items()}, busy)


async def _each(n: int, act: Callable[[int], Awaitable[object]]) -> None:
    numbers = iter(range(n))

    async def worker() -> None:
        for number in numbers:
            await act(number)

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def _released(client: Client) -> None:
    """No record left: the operator has nothing more to do."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        if not (await client.list(kinds.CONFIG_MAP, OWN, label_selector=kinds.RECORD_LABEL)).items:
            return
        await asyncio.sleep(0.5)
    raise RuntimeError("the operator did not release what was deleted")


async def _plainly(client: Client) -> Object:
    """The same pace without any webhook: how long this machine's API server and disk take for a create."""
    taken = sorted(await _paced(client))
    return {
        "bench": "vitistack-steady-without",
        "n": STEADY,
        "per_s": PER_SECOND,
        "p50_ms": round(taken[len(taken) // 2] * 1000, 1),
        "p99_ms": round(taken[int(len(taken) * 0.99)] * 1000, 1),
    }


async def _paced(client: Client) -> list[float]:
    """Seconds that each create took."""
    namespace = await _namespace(client)
    taken = []

    async def create(number: int) -> None:
        asked = time.perf_counter()
        await client.create(kinds.SERVICE, _service(number), namespace)
        taken.append(time.perf_counter() - asked)

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(STEADY):
            await asyncio.sleep(max(0.0, started + number / PER_SECOND - time.perf_counter()))
            group.create_task(create(number))
    await _each(STEADY, lambda number: client.delete(kinds.SERVICE, f"web-{number}", namespace))
    return taken


async def _steady(client: Client) -> AsyncIterator[Object]:
    await _flood(client, Machine({}), WARM)
    runs = []
    for _ in range(STEADY_ROUNDS):
        before = await _histograms(client)
        await _paced(client)
        await _released(client)
        runs.append(_between(before, await _histograms(client)))
    for name in WEBHOOKS:
        counts = [run[name] for run in runs]
        yield {
            "bench": f"vitistack-steady-{name}",
            "n": STEADY,
            "per_s": PER_SECOND,
            "p50_ms": round(statistics.median(_quantile(one, 0.5) for one in counts) * 1000, 1),
            "p99_ms": round(statistics.median(_quantile(one, 0.99) for one in counts) * 1000, 1),
            "within_25_ms": round(statistics.median(one[EDGE] / max(one.values()) for one in counts), 4),
            "rounds": STEADY_ROUNDS,
        }


def _between(before: Histograms, after: Histograms) -> Histograms:
    return {
        name: {edge: count - before[name].get(edge, 0.0) for edge, count in counts.items()}
        for name, counts in after.items()
    }


async def _histograms(client: Client) -> Histograms:
    """Dry runs are not among them: they never reach us."""
    found: Histograms = {name: {} for name in WEBHOOKS}
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
async def _served(cluster: DevCluster, url: str) -> AsyncIterator[OperatorProcess]:
    flags = ("--api-url", f"{url}/v2", "--webhook-url", f"https://127.0.0.1:{_free_port()}")
    more = ("--vitistack-zone", "hnet-private", "--log-level", "info")
    async with running_operator(cluster, "vitistack", *flags, *more) as operator:
        yield operator


@asynccontextmanager
async def _api(folder: Path) -> AsyncIterator[tuple[str, int]]:
    """`berth api` as a process of its own, on SQLite: its address and its process id."""
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
        yield line.split()[-1], process.pid
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _prepare(client: Client) -> None:
    for name in (METALLB, OWN):
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


def _service(number: int) -> Object:
    ports = [{"protocol": "TCP", "port": 80, "targetPort": 100}]
    # Node ports are few: thousands of Services would be a benchmark of running out of them.
    spec: Object = {"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": False}
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
