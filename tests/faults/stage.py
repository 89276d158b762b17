"""Where rows play: one control plane, an administrator's client, a directory, a seed, and what is planted."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.process import Command, Running, operator
from tests.faults.proxy import FaultProxy
from tests.faults.trade import Market, Trade
from tests.faults.word import hits
from tests.support.cluster import make_namespace
from tests.support.settings import settings_of

from berth.devcluster import DevCluster
from berth.kube.client import Client
from berth.settings import Settings

LOOK_SECONDS = 0.03
PAUSES = 4  # times what a look took
LEAST_PATIENCE, MOST_PATIENCE = 2.0, 5.0
OTHERS_PATIENCE = 3.0


@dataclass(frozen=True, slots=True)
class Stage:
    cluster: DevCluster
    client: Client
    home: Path
    random: Random = field(default_factory=Random)
    planted: tuple[str, ...] = ()  # bugs and scaled clocks, by their names in plants.py
    controller: Command | None = None  # instead of our own operator
    found: list[str] = field(default_factory=list)  # what no row looks for, and none may show

    def with_plants(self, *names: str) -> Stage:
        return replace(self, planted=(*self.planted, *names))

    def take_found(self) -> list[str]:
        """Words that leaked and operators that died by themselves since it was last asked for."""
        found = list(self.found)
        self.found.clear()
        return found

    @asynccontextmanager
    async def market(self, trade: Trade, size: int) -> AsyncIterator[Market]:
        """A fresh namespace with a pool of this size."""
        namespace = await make_namespace(self.cluster, "fault")
        word = f"canary-{self.random.getrandbits(64):016x}"
        market = Market(trade, self.client, namespace, word, self._patience)
        await trade.open(self.client, namespace, size)
        try:
            yield market
            if self.controller is None:  # what others log of a claim is theirs to say
                self.found.extend(await hits(self.home, market))
        finally:
            await trade.close(self.client, namespace)

    def _patience(self) -> float:
        """What others wait for by design, after what failed, is not for us to scale: they get the time."""
        return load_of_machine() * (1.0 if self.controller is None else OTHERS_PATIENCE)

    @asynccontextmanager
    async def proxy(self) -> AsyncIterator[FaultProxy]:
        async with FaultProxy(self.cluster, self.home).running() as running:
            yield running

    @asynccontextmanager
    async def operator(
        self, market: Market, proxy: FaultProxy | None = None, **settings: Any
    ) -> AsyncIterator[Running]:
        chosen = settings_of(
            kubeconfig=proxy.kubeconfig if proxy else self.cluster.kubeconfig,
            dialects=(market.trade.dialect,),
            namespace=market.namespace,
            **settings,
        )
        async with self._start(chosen, self.log_of(market)) as running:
            yield running

    def _start(self, chosen: Settings, log: Path) -> AbstractAsyncContextManager[Running]:
        if self.controller is not None:
            return self.controller.running(chosen, log)
        return operator(chosen, log, self.planted, self.found)

    @asynccontextmanager
    async def kept_operator(
        self, market: Market, proxy: FaultProxy | None = None, **settings: Any
    ) -> AsyncIterator[None]:
        """Started again whenever it ends, as a Deployment does."""

        async def keep() -> None:
            while True:
                async with self.operator(market, proxy, **settings) as running:
                    while running.alive:  # noqa: ASYNC110 - a process, not an event
                        await asyncio.sleep(0.1)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    @asynccontextmanager
    async def operators(self, market: Market, count: int) -> AsyncIterator[list[Running]]:
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.operator(market)) for _ in range(count)]

    def log_of(self, market: Market) -> Path:
        return self.home / f"{market.namespace}.log"


def load_of_machine() -> float:
    """Times are meant for a fast machine that has a core for us. Others are slower, and where somebody else
    waits for the cores too, so do we: twice as long at least, five times at most."""
    return min(MOST_PATIENCE, max(LEAST_PATIENCE, os.getloadavg()[0] / (os.cpu_count() or 1)))


async def until(check: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Look until it is so; False if it never was in time. Where a look is much work (hundreds of claims)
    the pauses are longer: who looks all the time holds up those who are looked at."""
    deadline = time.monotonic() + seconds
    while True:
        looked_at = time.monotonic()
        if await check():
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(max(LOOK_SECONDS, PAUSES * (time.monotonic() - looked_at)))


async def falls_silent(
    proxy: FaultProxy, quiet_seconds: float = 8.0, within_seconds: float = 36.0
) -> list[str]:
    """I5: after convergence there is a window without writes. Returns what was written too late."""
    within_seconds *= load_of_machine()
    deadline = time.monotonic() + within_seconds

    async def is_quiet() -> bool:
        last = max((write.at for write in proxy.writes if write.counts), default=0.0)
        return time.monotonic() - last >= quiet_seconds

    if await until(is_quiet, within_seconds):
        return []
    late = [str(write) for write in proxy.writes if write.counts and write.at > deadline - quiet_seconds]
    return [f"I5: still writing: {late[-5:]}"]
