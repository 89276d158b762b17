"""T32: every fault of the bench at random, by one seed, on one pool under load.

Two operators without election, each behind a proxy of its own. Faults come one after the other, some of them
before the last one is over; every few of them the load pauses and everything is checked. One of the two is
never killed: it shows whether memory grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from random import Random

from tests.faults.churn import Churn
from tests.faults.process import Running
from tests.faults.proxy import FaultProxy, Plan
from tests.faults.refusals import half_of_them, unreliable
from tests.faults.row import Tally
from tests.faults.scales import HASTY_JANITORS, SHORT_SILENCE
from tests.faults.stage import Stage, falls_silent, until
from tests.faults.streams import HALF_A_LINE, error_event
from tests.faults.trade import Market, Trade
from tests.faults.witness import watched

from berth.errors import Invalid

SIZE = 80
MOST = 40
BETWEEN_CHECKS = 8
SETTLE_SECONDS = 90.0
LATE_SECONDS = 0.3
MORTAL, OTHER = 0, 1
WARM_ROUNDS = 5
MOST_GROWTH = 1.05
ALLOWANCE = 4 << 20  # bytes: what a young process finds room for once


@dataclass(slots=True)
class Chaos:
    """What faults act on. `running` is the operator that is up now, by the number of its proxy."""

    stage: Stage
    market: Market
    random: Random
    proxies: list[FaultProxy]
    running: dict[int, Running] = field(default_factory=dict)

    @property
    def proxy(self) -> FaultProxy:
        return self.random.choice(self.proxies)

    async def keep(self, number: int) -> None:
        """An operator, and another one when it ends, as a Deployment does."""
        while True:
            async with self.stage.operator(self.market, self.proxies[number]) as child:
                self.running[number] = child
                while child.alive:  # noqa: ASYNC110 - a process, not an event
                    await asyncio.sleep(0.05)

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.plan = Plan()
            proxy.slow_reads.clear()
            proxy.streams.heal()
        for child in self.running.values():
            child.go_on()


Fault = Callable[[Chaos], Awaitable[None]]


async def kill(chaos: Chaos) -> None:
    chaos.running[MORTAL].kill()


async def stop_for_a_while(chaos: Chaos) -> None:
    child = chaos.random.choice(list(chaos.running.values()))
    child.stop()
    await asyncio.sleep(chaos.random.uniform(0.1, 2.0))
    child.go_on()


async def away(chaos: Chaos) -> None:
    with chaos.proxy.away():
        await asyncio.sleep(chaos.random.uniform(0.1, 1.0))


async def lose_answers(chaos: Chaos) -> None:
    chaos.proxy.plan = unreliable(chaos.random, chaos.random.uniform(0.01, 0.3))


async def refuse(chaos: Chaos) -> None:
    chaos.proxy.plan = Plan(before=half_of_them(chaos.random))


async def cut_watches(chaos: Chaos) -> None:
    chaos.proxy.streams.cut()


async def half_open(chaos: Chaos) -> None:
    chaos.proxy.streams.leave_half_open()


async def end_watches(chaos: Chaos) -> None:
    words = chaos.random.choice((HALF_A_LINE, error_event(410, "Expired"), error_event(500, "InternalError")))
    await chaos.proxy.streams.end_with(words, cleanly=chaos.random.random() < 0.5)


async def hear_late(chaos: Chaos) -> None:
    resource = chaos.random.choice(chaos.market.trade.resources)
    chaos.proxy.streams.come_late(resource.path(chaos.market.namespace), LATE_SECONDS)


async def resize(chaos: Chaos) -> None:
    size = chaos.random.randint(5, SIZE)
    with suppress(Invalid):  # a pool that may never be edited says so
        await chaos.market.trade.resize(chaos.stage.client, chaos.market.namespace, size)


async def whole(chaos: Chaos) -> None:
    with suppress(Invalid):
        await chaos.market.trade.resize(chaos.stage.client, chaos.market.namespace, SIZE)


async def kill_apiserver(chaos: Chaos) -> None:
    await chaos.stage.cluster.restart_apiserver()


async def kill_etcd(chaos: Chaos) -> None:
    await chaos.stage.cluster.restart_etcd()


async def compact(chaos: Chaos) -> None:
    await chaos.stage.cluster.compact_etcd()


OFTEN: tuple[Fault, ...] = (kill, stop_for_a_while, away, lose_answers, refuse, cut_watches)
ALSO: tuple[Fault, ...] = (half_open, end_watches, hear_late, resize)
SELDOM: tuple[Fault, ...] = (kill_apiserver, kill_etcd, compact)


def draw(random: Random) -> Fault:
    return random.choice(SELDOM if random.random() < 0.1 else (*OFTEN, *ALSO))


async def everything(stage: Stage, tally: Tally, faults: int, trade: Trade) -> None:
    stage = stage.with_plants(HASTY_JANITORS, SHORT_SILENCE)
    async with AsyncExitStack() as stack:
        market = await stack.enter_async_context(stage.market(trade, SIZE))
        await stack.enter_async_context(watched(stage, market, tally))
        proxies = [await stack.enter_async_context(stage.proxy()) for _ in range(2)]
        chaos = Chaos(stage, market, stage.random, proxies)
        keeping = [asyncio.create_task(chaos.keep(number)) for number in range(2)]
        try:
            await _rounds(chaos, tally, faults)
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)


async def _rounds(chaos: Chaos, tally: Tally, faults: int) -> None:
    churn = Churn(chaos.market, chaos.random, MOST)
    await churn.ask(5)
    assert await until(lambda: are_running(chaos), SETTLE_SECONDS)
    tally.violations += await churn.settle()
    sizes: list[int] = []
    while tally.tried < faults and not tally.is_over:
        played = []
        async with churn.going_on():
            for _ in range(min(BETWEEN_CHECKS, faults - tally.tried)):
                fault = draw(chaos.random)
                played.append(fault.__name__)
                await fault(chaos)
                await asyncio.sleep(chaos.random.uniform(0.0, 0.5))
        chaos.heal()
        await whole(chaos)
        found = await churn.settle(SETTLE_SECONDS)
        for proxy in chaos.proxies:
            found += await falls_silent(proxy)
        tally.tried += len(played)
        tally.violations += [f"after {', '.join(played)}: {one}" for one in found]
        sizes.append(chaos.running[OTHER].memory)
    tally.violations += _growth(sizes)


async def are_running(chaos: Chaos) -> bool:
    return len(chaos.running) == len(chaos.proxies)


def _growth(sizes: list[int]) -> list[str]:
    """Less than a twentieth, once it has seen a few rounds."""
    if len(sizes) < 3 * WARM_ROUNDS:
        return []
    warm, last = sizes[WARM_ROUNDS], sizes[-1]
    grown = last > warm * MOST_GROWTH + ALLOWANCE
    return [f"memory grew from {warm >> 20} to {last >> 20} MiB in {len(sizes)} rounds"] if grown else []
