"""T28: a word of this run, put where users write, turns up in no log and no Event."""

from __future__ import annotations

from pathlib import Path

from tests.faults.chronicle import claim_kinds
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
            tally.add([*found, *await _hits(stage, market, word)])


async def _hits(stage: Stage, market: Market, word: str) -> list[str]:
    """In nothing that was written: no file of ours, no Event, no object but the claims that carry it."""
    found = [f"I6: {word} is in {path.name}" for path in files_with(stage.home, word)]
    told = (await stage.client.list(EVENTS, market.namespace)).items
    found += [f"I6: {word} is in an Event"] * (word in str(told))
    for kind, objects in (await market.snapshot()).items():
        if kind not in claim_kinds(market.trade):
            found += [f"I6: {word} is in {one['metadata']['name']}" for one in objects if word in str(one)]
    return found


def files_with(folder: Path, word: str) -> list[Path]:
    """Every file there that has the word in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in files if word.encode() in path.read_bytes()]


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
