"""Benchmarks against a real control plane: the operator's rate beside the rate of the same writes without it.

The limit is the API server, so a rate says little alone. Each run stands between two of its ceiling: the very
writes a claim costs (the claim itself, finalizer, lease, status), made by one client with as many in flight
as the operator has, while the same watch is open. Before and after, because machines change from minute to
minute; and every run has a control plane of its own, because an API server gets slower with what it stores.
The operator is a process of its own and shares the machine with etcd, the API server and the load, as the
ceiling's client did.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from berth.devcluster import ClusterOptions, DevCluster
from berth.kube import auth
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
CRDS = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)
IN_FLIGHT = 64
READY_SECONDS = 60.0
QUIET_SECONDS = 0.5
QUIET_SHARE = 0.1  # of a core: an API server is never quite still
STEADY, STEADY_PER_S, STEADY_ROUNDS = 500, 50.0, 3
WARM = 2 * IN_FLIGHT  # claims before it counts: every connection is made, every path was taken


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of claim: how to ask, how to see that it is served, and the writes it costs."""

    name: str  # of the benchmark
    dialect: str
    crds: Callable[[], tuple[Object, ...]]
    claims: Resource
    claim: Callable[[str, int], Object]  # namespace, number
    is_bound: Callable[[Object], bool]
    prepare: Callable[[Client, str], Awaitable[None]]  # pools of a fresh namespace
    writes: Callable[
        [Client, Object, int], Awaitable[None]
    ]  # what the operator would write for a stored claim


@dataclass(slots=True)
class Seen:
    """When each claim was asked for and when it was seen bound."""

    asked_at: dict[str, float] = field(default_factory=dict)
    bound_at: dict[str, float] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: int = 0

    def bound(self, name: str) -> None:
        self.bound_at.setdefault(name, time.perf_counter())
        if len(self.bound_at) >= self.wanted:
            self.done.set()

    def seconds(self) -> float:
        return max(self.bound_at.values()) - min(self.asked_at.values())

    def latency_ms(self, share: float) -> float:
        taken = sorted(self.bound_at[name] - at for name, at in self.asked_at.items())
        return taken[int(len(taken) * share)] * 1000


@asynccontextmanager
async def bench_cluster(
    crds: tuple[Object, ...], *, durable: bool = True
) -> AsyncIterator[tuple[DevCluster, Client]]:
    """A control plane that syncs to disk, as a real one does, with the CRDs installed and served."""
    async with (
        DevCluster(ClusterOptions(durable=durable)) as cluster,
        Client(auth.load(cluster.kubeconfig), in_flight=IN_FLIGHT, user_agent="berth-bench") as client,
    ):
        for crd in crds:
            await client.create(CRDS, crd)
        await _served(client, crds)
        yield cluster, client


async def ceiling(client: Client, scenario: Scenario, n: int) -> float:
    """Claims a second if the same writes are made without any operator."""
    namespace = await fresh_namespace(client, scenario)
    seen = Seen(wanted=n)
    async with _watching(client, scenario, namespace, seen):
        numbers = iter(range(n))
        started = time.perf_counter()

        async def worker() -> None:
            for number in numbers:
                stored = await _ask(client, scenario, namespace, number, seen)
                await scenario.writes(client, stored, number)

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
        return n / (time.perf_counter() - started)


async def flood(client: Client, scenario: Scenario, n: int) -> Seen:
    """N claims as fast as the server takes them; returns when the last one is bound."""
    namespace = await fresh_namespace(client, scenario)
    seen = Seen(wanted=n)
    async with _watching(client, scenario, namespace, seen):
        numbers = iter(range(n))

        async def worker() -> None:
            for number in numbers:
                await _ask(client, scenario, namespace, number, seen)

        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
        async with asyncio.timeout(60 + n / 10):
            await seen.done.wait()
    return seen


async def steady(
    client: Client, scenario: Scenario, n: int, per_second: float, *, operated: bool = True
) -> Seen:
    """Claims at an even pace, whatever becomes of them meanwhile. Not operated: whoever asks makes the
    operator's writes himself; so long they take on this machine.
    """
    namespace = await fresh_namespace(client, scenario)
    seen = Seen(wanted=n)

    async def one(number: int) -> None:
        stored = await _ask(client, scenario, namespace, number, seen)
        if not operated:
            await scenario.writes(client, stored, number)

    async with _watching(client, scenario, namespace, seen), asyncio.TaskGroup() as group:
        started = time.perf_counter()
        for number in range(n):
            await asyncio.sleep(max(0.0, started + number / per_second - time.perf_counter()))
            group.create_task(one(number))
        async with asyncio.timeout(60):
            await seen.done.wait()
    return seen


async def run_scenario(scenario: Scenario, sizes: tuple[int, ...]) -> AsyncIterator[Object]:
    """For each size: ceiling and flood in turn, a few rounds, and a ceiling at the end; medians. Then the
    steady rate, in the same way."""
    for n in sizes:
        yield await _measure(scenario, n, _rounds(n))
    yield await _measure_steady(scenario)


async def _measure_steady(scenario: Scenario) -> Object:
    ours, tops = [], []
    for _ in range(STEADY_ROUNDS):
        async with _alone(scenario) as client:
            tops.append(await steady(client, scenario, STEADY, STEADY_PER_S, operated=False))
        async with _at_work(scenario) as (client, _):
            ours.append(await steady(client, scenario, STEADY, STEADY_PER_S))
    return {
        "bench": f"{scenario.name}-steady",
        "n": STEADY,
        "per_s": STEADY_PER_S,
        "p50_ms": _median_of(ours, 0.5),
        "p99_ms": _median_of(ours, 0.99),
        "ceiling_p50_ms": _median_of(tops, 0.5),
        "ceiling_p99_ms": _median_of(tops, 0.99),
        "rounds": STEADY_ROUNDS,
    }


def _median_of(runs: list[Seen], share: float) -> float:
    """Of the quantiles of each run."""
    return round(statistics.median(run.latency_ms(share) for run in runs), 1)


def _rounds(n: int) -> int:
    """The shorter, the more it depends on the moment."""
    return 9 if n <= 200 else 5 if n <= 1000 else 3


async def _measure(scenario: Scenario, n: int, rounds: int) -> Object:
    rates, costs, memory = [], [], 0.0
    tops = [await _ceiling_alone(scenario, n)]
    for _ in range(rounds):
        async with _at_work(scenario) as (client, operator):
            before = operator.cpu_seconds()
            seen = await flood(client, scenario, n)
            rates.append(n / seen.seconds())
            costs.append((operator.cpu_seconds() - before) / n * 1000)
            memory = max(memory, operator.rss_mb())
        tops.append(await _ceiling_alone(scenario, n))
    beside = [(before + after) / 2 for before, after in pairwise(tops)]
    top, rate = statistics.median(beside), statistics.median(rates)
    return {
        "bench": scenario.name,
        "n": n,
        "per_s": round(rate, 1),
        "ceiling_per_s": round(top, 1),
        "ratio": round(statistics.median(r / t for r, t in zip(rates, beside, strict=True)), 3),
        "cpu_s_per_1000": round(statistics.median(costs), 2),
        "rss_mb": round(memory, 1),
        "rounds": rounds,
    }


async def _ceiling_alone(scenario: Scenario, n: int) -> float:
    async with _alone(scenario) as client:
        return await ceiling(client, scenario, n)


@asynccontextmanager
async def _alone(scenario: Scenario) -> AsyncIterator[Client]:
    """A control plane without an operator, as warm as with one."""
    async with bench_cluster(scenario.crds()) as (cluster, client):
        await ceiling(client, scenario, WARM)
        await _at_rest(cluster)
        yield client


@asynccontextmanager
async def _at_work(scenario: Scenario) -> AsyncIterator[tuple[Client, OperatorProcess]]:
    """Connections made and code paths warm: a running operator and not a starting one."""
    async with (
        bench_cluster(scenario.crds()) as (cluster, client),
        running_operator(cluster, scenario.dialect) as operator,
    ):
        await flood(client, scenario, WARM)
        await _at_rest(cluster, operator.process.pid)
        yield client, operator


async def _at_rest(cluster: DevCluster, *more: int) -> None:
    pids = [pid for pid in (cluster.apiserver.pid, cluster.etcd.pid, *more) if pid is not None]
    for _ in range(round(READY_SECONDS / QUIET_SECONDS)):
        before = sum(map(cpu_seconds, pids))
        await asyncio.sleep(QUIET_SECONDS)
        if sum(map(cpu_seconds, pids)) - before <= QUIET_SECONDS * QUIET_SHARE:
            return
    raise RuntimeError(f"there was still work going on {READY_SECONDS:g} s after the start")


def cpu_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class OperatorProcess:
    process: asyncio.subprocess.Process

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0


@asynccontextmanager
async def running_operator(cluster: DevCluster, dialect: str, *flags: str) -> AsyncIterator[OperatorProcess]:
    """`berth operator` as its own process; yields when it serves, ends it by its id. It logs to a file: to
    read its lines would cost the load's own loop.
    """
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        log = Path(folder) / "operator.log"
        with log.open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "berth.cli.main", "operator", "--dialects", dialect),
                *("--kubeconfig", str(cluster.kubeconfig), *flags),
                stderr=said,
            )
        try:
            await _serving(process, log)
            yield OperatorProcess(process)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.wait()


async def _serving(process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while "\tserving\t" not in (said := await asyncio.to_thread(log.read_text, errors="replace")):
        if process.returncode is not None or time.monotonic() > deadline:
            raise RuntimeError("the operator did not start:\n" + "\n".join(said.splitlines()[-20:]))
        await asyncio.sleep(0.05)


async def fresh_namespace(client: Client, scenario: Scenario) -> str:
    created = await client.create(
        NAMESPACES,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"bench-{scenario.dialect}-"}},
    )
    namespace = str(created["metadata"]["name"])
    await scenario.prepare(client, namespace)
    return namespace


async def _ask(client: Client, scenario: Scenario, namespace: str, number: int, seen: Seen) -> Object:
    claim = scenario.claim(namespace, number)
    seen.asked_at[claim["metadata"]["name"]] = time.perf_counter()
    return await client.create(scenario.claims, claim, namespace)


@asynccontextmanager
async def _watching(client: Client, scenario: Scenario, namespace: str, seen: Seen) -> AsyncIterator[None]:
    version = await client.revision(scenario.claims, namespace)

    async def follow() -> None:
        nonlocal version
        while True:  # a server under flood ends the watches it cannot feed quickly enough
            stream = client.watch(scenario.claims, namespace, resource_version=version, timeout_seconds=3600)
            async with aclosing(stream) as events:
                async for event in events:
                    version = event.object["metadata"]["resourceVersion"]
                    if event.type == "MODIFIED" and scenario.is_bound(event.object):
                        seen.bound(event.object["metadata"]["name"])

    async with asyncio.TaskGroup() as group:  # a watch that fails fails the run, it is not waited for
        watch = group.create_task(follow())
        yield
        watch.cancel()


async def _served(client: Client, crds: tuple[Object, ...]) -> None:
    """A new CRD is served a moment after it was stored."""
    deadline = time.monotonic() + READY_SECONDS
    for crd in crds:
        while time.monotonic() < deadline:
            found = await client.get(CRDS, crd["metadata"]["name"])
            conditions = (found.get("status") or {}).get("conditions") or []
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                break
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


def collect(results: AsyncIterator[Object]) -> Iterator[Object]:
    """An asynchronous benchmark as the plain iterator the command line prints."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        while True:
            try:
                yield runner.run(_next(results))
            except StopAsyncIteration:
                return


async def _next(results: AsyncIterator[Object]) -> Object:
    return await anext(results)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
