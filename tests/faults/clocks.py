"""T17, as far as operators have clocks: those of two replicas are far apart, and neither is right."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from tests.faults.churn import Churn
from tests.faults.leading import elected, lease_of, takeover, watches
from tests.faults.process import Running
from tests.faults.proxy import FaultProxy
from tests.faults.row import Tally
from tests.faults.scales import CLOCKS
from tests.faults.stage import Stage, until
from tests.faults.trade import Market, Trade
from tests.faults.witness import remembered

AT_ONCE = 2


async def apart(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    """The one that waits does not believe its clock that the lease is long over, and the other's word about
    the time does not keep it from taking over."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with turn, stage.market(trade, 40) as market, remembered(market, tally):
            tally.add(await _apart(stage, market))

    await asyncio.gather(*(one() for _ in range(times)))


async def _apart(stage: Stage, market: Market) -> list[str]:
    first, second = stage.random.sample(sorted(CLOCKS), 2)
    churn, lease = Churn(market, stage.random, 20), lease_of(market)
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(stage.proxy()) for _ in range(2)]
        leads = stage.with_plants(first).operator(market, one, **elected(market, lease))
        leader = await stack.enter_async_context(leads)
        await churn.ask(5)
        found = await churn.settle()
        waits = stage.with_plants(second).operator(market, two, **elected(market, lease))
        await stack.enter_async_context(waits)
        assert await until(lambda: watches(two), 60)
        await churn.run(10)
        found += await churn.settle()
        taken_over = await _taken_over(leader, two, churn, lease)
        return [*found, *(f"{one} ({second} beside {first})" for one in taken_over)]


async def _taken_over(leader: Running, proxy: FaultProxy, churn: Churn, lease: float) -> list[str]:
    leader.kill()
    killed_at = time.monotonic()
    await churn.ask(5)
    found = await churn.settle()
    return [*found, *takeover(proxy, killed_at, lease, churn.market)]
