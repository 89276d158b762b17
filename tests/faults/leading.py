"""T07: the leader is stopped (SIGSTOP) past its lease and goes on (SIGCONT) after another took over."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

from tests.faults.churn import Churn
from tests.faults.process import Running
from tests.faults.proxy import FaultProxy
from tests.faults.row import Tally
from tests.faults.stage import Stage, until
from tests.faults.trade import Market, Trade
from tests.faults.witness import remembered

LEASE_SECONDS = 3.0
TAKEOVER_LEASES = 1.5
AT_ONCE = 2


async def leader_stopped(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    turn = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with turn, stage.market(trade, 40) as market, remembered(market, tally):
            tally.add(await _stopped(stage, market, lease_of(market), tally.haste))

    await asyncio.gather(*(one() for _ in range(times)))


async def _stopped(stage: Stage, market: Market, lease: float, haste: float) -> list[str]:
    async with AsyncExitStack() as stack:
        its_proxy, other = [await stack.enter_async_context(stage.proxy()) for _ in range(2)]
        leader = await stack.enter_async_context(stage.operator(market, its_proxy, **elected(market, lease)))
        churn = Churn(market, stage.random, 20)
        await churn.ask(5)
        found = await churn.settle()
        await stack.enter_async_context(stage.kept_operator(market, other, **elected(market, lease)))
        assert await until(lambda: watches(other), 60)
        leader.stop()
        stopped_at = time.monotonic()
        await churn.ask(5)
        found += await churn.settle()
        found += takeover(other, stopped_at, lease, market)
        return [*found, *await _goes_on(leader, its_proxy, churn, 60 * haste)]


def takeover(proxy: FaultProxy, since: float, lease: float, market: Market) -> list[str]:
    """Nothing was written before, and the first write came in time. The server keeps whole seconds of a
    lease, and a process on a busy machine waits for its turn."""
    early = [
        f"{write} before the leader was gone" for write in proxy.writes if write.counts and write.at < since
    ]
    took = next((write.at for write in proxy.writes if write.counts and write.at >= since), since) - since
    late = took > TAKEOVER_LEASES * lease + market.patience
    return [*early, *([f"takeover took {took:.1f} s"] if late else [])]


async def _goes_on(leader: Running, proxy: FaultProxy, churn: Churn, seconds: float) -> list[str]:
    """It may finish no write and must end; what it had sent before it was stopped does not count."""
    before = [write for write in proxy.writes if write.counts]
    leader.go_on()
    await churn.ask(5)
    await churn.drop(3)
    ended = await until(lambda: _has_ended(leader), seconds)
    late = [str(write) for write in proxy.writes if write.counts and write not in before]
    found = [f"the former leader wrote {late}"] if late else []
    return [*found, *([] if ended else ["the former leader did not end"]), *await churn.settle()]


def lease_of(market: Market) -> float:
    """Longer where the machine is busy: a leader that gets no turn loses its lease, and rightly so."""
    return LEASE_SECONDS * max(1.0, market.patience / 2)


def elected(market: Market, lease: float) -> dict[str, Any]:
    return {"leader_elect": True, "lease_namespace": market.namespace, "lease_seconds": lease}


async def watches(proxy: FaultProxy) -> bool:
    return len(proxy.streams) > 1


async def _has_ended(child: Running) -> bool:
    return not child.alive
