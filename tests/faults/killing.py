"""Kill points: a scenario is recorded once and its writes numbered; then it runs again and again, and the
operator is killed (SIGKILL) before or after each one. A second operator finishes the work, and the world is
checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.faults.process import OperatorProcess, operator
from tests.faults.proxy import FaultProxy, Pass, Plan, Verdict, Write
from tests.support.cluster import make_namespace

from berth.devcluster import DevCluster
from berth.kube.client import Client
from berth.settings import Settings


class Scenario(Protocol):
    """Something to do in a fresh namespace, and what must be true once it is over."""

    dialect: str

    async def play(self, client: Client, namespace: str, wait: Wait) -> None: ...
    async def violations(self, client: Client, namespace: str) -> list[str]: ...
    async def settled(self, client: Client, namespace: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits for a condition, or until the operator is dead."""

    alive: Callable[[], bool]

    async def __call__(self, check: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while self.alive() and not await check():  # noqa: ASYNC110 - the API server's state
                await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Point:
    number: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} write {self.number}"


class KillBench:
    def __init__(self, cluster: DevCluster, client: Client, home: Path) -> None:
        self._cluster = cluster
        self._client = client
        self._home = home

    async def record(self, scenario: Scenario) -> list[Write]:
        """The writes of one undisturbed run."""
        async with FaultProxy(self._cluster, self._home).running() as proxy:
            namespace = await make_namespace(self._cluster, "fault")
            async with self._operator(scenario, namespace, proxy) as running:
                await scenario.play(self._client, namespace, Wait(lambda: running.alive))
                await self._settle(scenario, namespace)
            return list(proxy.writes)

    async def run(self, scenario: Scenario, point: Point) -> list[str]:
        """One try; the violations found."""
        async with FaultProxy(self._cluster, self._home).running() as proxy:
            namespace = await make_namespace(self._cluster, "fault")
            async with self._operator(scenario, namespace, proxy) as first:
                proxy.plan = _kill_at(point, first)
                await scenario.play(self._client, namespace, Wait(lambda: first.alive))
            proxy.plan = Plan()
            async with self._operator(scenario, namespace, proxy):
                await self._settle(scenario, namespace)
                return await scenario.violations(self._client, namespace)

    async def _settle(self, scenario: Scenario, namespace: str, seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not await scenario.settled(self._client, namespace):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def _operator(
        self, scenario: Scenario, namespace: str, proxy: FaultProxy
    ) -> AsyncIterator[OperatorProcess]:
        settings = Settings(kubeconfig=proxy.kubeconfig, dialects=(scenario.dialect,), namespace=namespace)
        async with operator(settings, self._home / "operator.log") as running:
            yield running


def _kill_at(point: Point, victim: OperatorProcess) -> Plan:
    async def kill(write: Write) -> Verdict:
        if write.number == point.number:
            await asyncio.to_thread(victim.kill)
        return Pass()

    return Plan(after=kill) if point.after else Plan(before=kill)
