"""Many at once: T08 several operators without election, T31 pool edits under load, T33 a line before an
empty pool.
"""

from __future__ import annotations

import asyncio
import time

from tests.faults.churn import Churn
from tests.faults.row import Tally
from tests.faults.stage import Stage, until
from tests.faults.trade import Market, Trade
from tests.faults.witness import remembered, watched

CLAIMS = 200
SETTLE_SECONDS = 60.0
LINE_SECONDS = 5.0


async def several_operators(
    stage: Stage, tally: Tally, rounds: int, trade: Trade, claims: int = CLAIMS
) -> None:
    """T08: three operators, nobody leads; 200 claims come at once, and go."""
    async with (
        stage.market(trade, round(claims * 2.2)) as market,
        watched(stage, market, tally),
        stage.operators(market, 3),
    ):
        churn = Churn(market, stage.random, claims, hasty=bool(tally.wanted))
        for number in range(rounds):
            await churn.ask(claims)
            tally.add(await churn.settle(SETTLE_SECONDS), f"round {number}")
            if tally.is_over:
                return
            await churn.drop(claims)
        tally.violations += await churn.settle(SETTLE_SECONDS)


async def pool_edits(stage: Stage, tally: Tally, edits: int, trade: Trade) -> None:
    """T31: the pool shrinks and grows while claims come and go; nobody's address changes."""
    async with stage.market(trade, 40) as market, watched(stage, market, tally), stage.operator(market):
        churn = Churn(market, stage.random, 30)
        async with churn.going_on():
            for _ in range(edits):
                await trade.resize(stage.client, market.namespace, stage.random.randint(1, 60))
                await asyncio.sleep(stage.random.uniform(0.02, 0.15))
                tally.add(market.wrong(await market.snapshot()))
        await trade.resize(stage.client, market.namespace, 80)
        tally.violations += await churn.settle()


async def line_at_an_empty_pool(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    """T33: 200 claims wait; the 200 who have everything go; all are served in 5 s, none made anew."""
    async with (
        stage.market(trade, CLAIMS * 2) as market,
        remembered(market, tally),
        stage.operator(market),
    ):
        for _ in range(times):
            churn = Churn(market, stage.random, CLAIMS)
            started_at = time.monotonic()
            await churn.ask(CLAIMS)
            tally.violations += await churn.settle(SETTLE_SECONDS)
            # On a busy machine: measured by 200 newcomers who need not wait. To go and to be served after it
            # costs five writes where they need four, and who else is at work changes from one to the other.
            limit = max(LINE_SECONDS * market.patience, 3.0 * (time.monotonic() - started_at))
            seen = market.trade.used(await market.snapshot())
            await trade.resize(stage.client, market.namespace, seen or CLAIMS)
            tally.add(await _release_all(market, churn, limit))
            await trade.resize(stage.client, market.namespace, CLAIMS * 2)
            await churn.drop(CLAIMS)
            tally.violations += await churn.settle(SETTLE_SECONDS)


async def _release_all(market: Market, holders: Churn, limit: float) -> list[str]:
    waiting = [f"a{number}" for number in range(10_000, 10_000 + CLAIMS)]
    await asyncio.gather(*(market.ask(name) for name in waiting))
    told = await until(lambda: _all_told(market, waiting), SETTLE_SECONDS)
    uids = {name: one.uid for name, one in (await market.shown()).items() if name in waiting}
    await holders.drop(CLAIMS)
    holders.alive = waiting
    started_at = time.monotonic()
    found = await holders.settle(SETTLE_SECONDS)
    took = time.monotonic() - started_at
    after = {name: one.uid for name, one in (await market.shown()).items() if name in waiting}
    late = [f"all were served only after {took:.1f} s"] if took > limit else []
    unheard = [] if told else ["I4: nobody told those who wait that the pool is empty"]
    return [*unheard, *found, *late, *([] if after == uids else ["claims were made anew"])]


async def _all_told(market: Market, names: list[str]) -> bool:
    shown = await market.shown()
    return all(name in shown and shown[name].reason for name in names)
