"""T28: a word of this run, put where users write, turns up in no log and no Event."""

from __future__ import annotations

from tests.faults.churn import Churn
from tests.faults.row import Tally
from tests.faults.stage import Stage
from tests.faults.trade import Market, Trade

from berth.control.events import EVENTS

ANNOTATION = "example.com/note"


async def nothing_is_told(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    for _ in range(times):
        word = f"canary-{stage.random.getrandbits(64):016x}"
        async with stage.market(trade, 2) as market:
            async with stage.operator(market):
                found = await _use(market, stage, word)
            found += [f"I6: {word} is in the log"] * (word in stage.log_of(market).read_text())
            told = (await stage.client.list(EVENTS, market.namespace)).items
            tally.add([*found, *([f"I6: {word} is in an Event"] if word in str(told) else [])])


async def _use(market: Market, stage: Stage, word: str) -> list[str]:
    """Served, refused, and gone again."""
    churn = Churn(market, stage.random, 3)
    churn.alive = ["a1", "k2"]
    for name in churn.alive:
        await market.ask(name, annotations={ANNOTATION: word})
    found = await churn.settle()
    await market.ask("a3", annotations={ANNOTATION: word})
    await churn.drop(1)
    churn.alive.append("a3")
    return [*found, *await churn.settle()]
