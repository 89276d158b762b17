"""T02, kill points: a scenario is recorded once and its writes numbered; then it runs again and again, and
the operator is killed (SIGKILL) before or after each one. A second operator finishes the work, and the world
is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from tests.faults.chronicle import chronicled
from tests.faults.process import Running
from tests.faults.proxy import Cut, FaultProxy, Pass, Plan, Verdict, Write
from tests.faults.row import Tally
from tests.faults.stage import Stage, until
from tests.faults.trade import Market, Trade

SIZE = 8
FIRST = ("a1", "a2", "k1")
GOES = "a2"
SECOND = ("a3", "k2")
STAY = ("a1", "k1", *SECOND)
BOUND_SECONDS = 30.0
AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Point:
    number: int
    after: bool

    def __str__(self) -> str:
        return f"killed {'after' if self.after else 'before'} write {self.number}"


@dataclass(slots=True)
class Killing:
    """The plan that kills at one point, and whether it came to that."""

    point: Point
    victim: Running
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def plan(self) -> Plan:
        return Plan(after=self._kill) if self.point.after else Plan(before=self._kill)

    async def _kill(self, write: Write) -> Verdict:
        if self.done.is_set():
            return Cut()  # it was on its way when its sender died
        if write.number != self.point.number:
            return Pass()
        self.done.set()
        await asyncio.to_thread(self.victim.kill)
        return Cut()


async def record(stage: Stage, trade: Trade) -> list[Write]:
    """The writes of one undisturbed run."""
    async with stage.market(trade, SIZE) as market, stage.proxy() as proxy:
        async with stage.operator(market, proxy) as running:
            await _play(market, lambda: running.alive)
            assert await until(lambda: _is_settled(market), BOUND_SECONDS * market.patience)
        return list(proxy.writes)


async def kill_at(stage: Stage, trade: Trade, point: Point, haste: float) -> list[str] | None:
    """One try: the violations found; None if the run was over before the point came."""
    async with stage.market(trade, SIZE) as market, stage.proxy() as proxy:
        async with chronicled(market) as chronicle:
            async with stage.operator(market, proxy) as first:
                killing = Killing(point, first)
                proxy.plan = killing.plan()
                await _play(market, lambda: first.alive)
            if not killing.done.is_set():
                return None
            proxy.plan = Plan()
            found = await _recover(stage, market, proxy, haste)
        return [*found, *chronicle.violations(market)]


async def _recover(stage: Stage, market: Market, proxy: FaultProxy, haste: float) -> list[str]:
    async with stage.operator(market, proxy):
        seconds = BOUND_SECONDS * market.patience * haste
        if not await until(lambda: _is_settled(market), seconds):
            stuck = {name: one for name, one in (await market.shown()).items() if not one.answer or one.going}
            return [f"I4: after {seconds:g} s not all is settled: {stuck}", *await market.violations()]
        return await market.violations()


async def _play(market: Market, alive: Callable[[], bool]) -> None:
    """Three claims, one goes, two more come; with a dead operator the rest is done without waiting."""

    async def when(check: Callable[[], Awaitable[bool]]) -> None:
        async def over() -> bool:
            return not alive() or await check()

        assert await until(over, BOUND_SECONDS * market.patience)

    for name in FIRST:
        await market.ask(name)
    await when(lambda: market.all_answered(FIRST))
    await market.drop(GOES)
    await when(lambda: _is_gone(market, GOES))
    for name in SECOND:
        await market.ask(name)
    await when(lambda: _is_settled(market))


async def _is_gone(market: Market, name: str) -> bool:
    return not await market.exists(name)


async def _is_settled(market: Market) -> bool:
    """All that stay have an answer, the one that goes is gone, and the pool has nothing beyond."""
    seen = await market.snapshot()
    shown = market.note(seen)
    if set(shown) != set(STAY) or not all(one.answer for one in shown.values()):
        return False
    return not market.trade.litter(seen)


async def every_write(stage: Stage, tally: Tally, tries: int, trade: Trade) -> None:
    """T02: every point once in random order, and again from the start until there were enough tries."""
    writes = await record(stage, trade)
    assert len(writes) >= 10, [str(write) for write in writes]
    points = _points(stage, len(writes))

    async def go_on() -> None:
        while tally.tried < tries and not tally.is_over:
            point = next(points)
            found = await kill_at(stage, trade, point, tally.haste)
            if found is not None:
                tally.add(found, f"{point} (like {writes[point.number]})")

    await asyncio.gather(*(go_on() for _ in range(1 if trade.shares_cluster else AT_ONCE)))


def _points(stage: Stage, writes: int) -> Iterator[Point]:
    while True:
        points = [Point(number, after) for number in range(writes) for after in (False, True)]
        stage.random.shuffle(points)
        yield from points
