"""T09, T10, T11: the control plane itself is killed under load, or comes back from an older backup."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.faults.churn import Churn
from tests.faults.proxy import FaultProxy
from tests.faults.row import Tally
from tests.faults.scales import HASTY_JANITORS
from tests.faults.stage import Stage, falls_silent
from tests.faults.trade import Market, Trade
from tests.faults.witness import watched

HEAL_SECONDS = 60.0


async def apiserver_killed(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    await _killed(stage, tally, times, trade, stage.cluster.restart_apiserver)


async def etcd_killed(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    await _killed(stage, tally, times, trade, stage.cluster.restart_etcd)


async def _killed(
    stage: Stage, tally: Tally, times: int, trade: Trade, kill: Callable[[], Awaitable[None]]
) -> None:
    async with (
        stage.market(trade, 60) as market,
        watched(stage, market, tally),
        stage.proxy() as proxy,
        stage.kept_operator(market, proxy),
    ):
        churn = Churn(market, stage.random, 40)
        await churn.ask(5)
        tally.violations += await churn.settle()
        for _ in range(times):
            await _under_load(churn, kill)
            tally.add(await churn.settle())
        tally.violations += await falls_silent(proxy)


async def _under_load(churn: Churn, act: Callable[[], Awaitable[None]]) -> None:
    async with churn.going_on():
        await asyncio.sleep(0.5)
        await act()
        await asyncio.sleep(0.5)


async def restored(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    """T11: back to an older copy of etcd while the operator runs; every other time the revisions do not go
    back with it, as after a restore with a revision bump. What was made for a claim that names another object
    by then may be left to the janitor."""
    stage = stage.with_plants(HASTY_JANITORS)
    for number in range(times):
        async with stage.market(trade, 60) as market, stage.proxy() as proxy, stage.operator(market, proxy):
            tally.add(await _restore(stage, market, proxy, bump=number % 2 == 1), f"try {number}")


async def _restore(stage: Stage, market: Market, proxy: FaultProxy, *, bump: bool) -> list[str]:
    churn = Churn(market, stage.random, 30)
    await churn.ask(20)
    found = await churn.settle()
    with proxy.away():  # so that some of what is done after the backup is news to it
        await churn.ask(5)
        saved = await stage.cluster.save_etcd()
    then = list(churn.alive)
    await churn.drop(10)
    await churn.ask(10)
    found += await churn.settle()
    with proxy.away():
        await stage.cluster.restore_etcd(saved)
        if bump:
            await _bump(stage, market)
    churn.alive = then
    churn.history.calls.clear()
    churn.market.first_seen.clear()  # what was answered after the backup is not in it: I3 ends here
    return [*found, *await churn.settle(HEAL_SECONDS), *await falls_silent(proxy)]


async def _bump(stage: Stage, market: Market) -> None:
    """Past every revision that was ever shown; a server that starts then knows nothing older."""
    spare = Market(market.trade, stage.client, "default")
    for _ in range(150):
        await spare.ask("a0")
        await spare.drop("a0")
    await stage.cluster.restart_apiserver()
