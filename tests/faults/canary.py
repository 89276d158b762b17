"""T28: a word of this run, put where users write, turns up in no log and no Event.

Every market looks for its word when it closes (word.py). Here claims are served, refused, and gone again.
"""

from __future__ import annotations

from tests.faults.churn import Churn
from tests.faults.row import Tally
from tests.faults.stage import Stage
from tests.faults.trade import Trade
from tests.faults.witness import remembered


async def nothing_is_told(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    for _ in range(times):
        async with stage.market(trade, 2) as market, remembered(market, tally), stage.operator(market):
            churn = Churn(market, stage.random, 3)
            churn.alive = ["a1", "k2"]
            for name in churn.alive:
                await market.ask(name)
            found = await churn.settle()
            await market.ask("a3")
            await churn.drop(1)
            churn.alive.append("a3")
            tally.add([*found, *await churn.settle()])
