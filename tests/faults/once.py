"""T13, one at a time: a scenario is recorded once and its writes counted; then it is played again and again,
each time with one of them refused, cut or unheard, once. Nobody is killed: what was refused must be tried
again, also for those for whom no further event will ever come.

Two claims have the pool's two addresses, and were there before the operator; a third one waits until the
first of them goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from tests.faults.killing import AT_ONCE
from tests.faults.proxy import Cut, Pass, Plan, Say, Verdict, Write
from tests.faults.row import Tally
from tests.faults.stage import Stage, until
from tests.faults.trade import Market, Trade
from tests.faults.witness import remembered

SIZE = 2
CLAIMS = ("a1", "a2", "a3")
SERVED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    verdict: Verdict
    after: bool = False  # the server has acted by then


FAULTS = (
    Fault("refused with 409", Say(409, "Conflict")),
    Fault("refused with 500", Say(500, "InternalError")),
    Fault("cut", Cut()),
    Fault("done unheard", Cut(), after=True),
)


@dataclass(slots=True)
class Once:
    """The plan by which the n-th write that counts has its fault."""

    fault: Fault
    at: int
    seen: int = 0
    hit: Write | None = None

    def plan(self) -> Plan:
        return Plan(after=self._ask) if self.fault.after else Plan(before=self._ask)

    async def _ask(self, write: Write) -> Verdict:
        if not write.counts:
            return Pass()
        self.seen += 1
        if self.seen != self.at:
            return Pass()
        self.hit = write
        return self.fault.verdict

    def __str__(self) -> str:
        return f"{self.hit} {self.fault.name}"


async def each_write(stage: Stage, tally: Tally, tries: int, trade: Trade) -> None:
    """Every write with every fault once in random order, and again until there were enough tries."""
    undisturbed = Once(FAULTS[0], at=0)
    found = await _play(stage, tally, trade, undisturbed)
    assert not found, f"it does not serve without any fault: {found}"
    points = _points(stage, undisturbed.seen)

    async def go_on() -> None:
        while tally.tried < tries and not tally.is_over:
            once = next(points)
            found = await _play(stage, tally, trade, once)
            if once.hit is not None:  # not every time are there as many writes
                tally.add(found, str(once))

    await asyncio.gather(*(go_on() for _ in range(1 if trade.shares_cluster else AT_ONCE)))


def _points(stage: Stage, writes: int) -> Iterator[Once]:
    while True:
        points = [Once(fault, at) for at in range(1, writes + 1) for fault in FAULTS]
        stage.random.shuffle(points)
        yield from points


async def _play(stage: Stage, tally: Tally, trade: Trade, once: Once) -> list[str]:
    async with stage.market(trade, SIZE) as market, remembered(market, tally), stage.proxy() as proxy:
        for name in CLAIMS:
            await market.ask(name)
        proxy.plan = once.plan()
        async with stage.operator(market, proxy):
            seconds = SERVED_SECONDS * market.patience * tally.haste
            if not await until(lambda: _is_full(market), seconds):
                return [f"I4: not all were served or told why not in {seconds:g} s: {await _told(market)}"]
            goes = next(one.name for one in (await market.shown()).values() if one.answer)
            await market.drop(goes)
            if not await until(lambda: _is_settled(market, goes), seconds):
                return [f"I4: {goes} was not succeeded to in {seconds:g} s: {await _told(market)}"]
            return await market.violations()


async def _is_full(market: Market) -> bool:
    shown = (await market.shown()).values()
    served = [one for one in shown if one.answer]
    return len(served) == SIZE and all(one.answer or one.reason for one in shown)


async def _is_settled(market: Market, gone: str) -> bool:
    seen = await market.snapshot()
    shown = market.note(seen)
    return gone not in shown and all(one.answer for one in shown.values()) and not market.trade.litter(seen)


async def _told(market: Market) -> dict[str, str]:
    return {one.name: one.answer or one.reason or "nothing" for one in (await market.shown()).values()}
