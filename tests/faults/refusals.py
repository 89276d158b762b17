"""T13 and T14: answers that refuse, throttle or never come, between the operator and its API server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from random import Random

from tests.faults.churn import Churn
from tests.faults.proxy import Ask, Cut, FaultProxy, Pass, Plan, Say, Verdict, Write
from tests.faults.row import Tally
from tests.faults.stage import Stage, falls_silent
from tests.faults.trade import Market, Trade
from tests.faults.witness import remembered, watched

CONFLICT_SECONDS = 60.0
WRITES_A_SECOND = 5.0
WINDOW_SECONDS = 3.0  # one that was refused is tried again soon, then ever more slowly
LATE_SECONDS = 0.3


async def conflicts(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    """T13: half of all writes are refused with 409 for a minute; nobody is written to in a fury."""
    for _ in range(times):
        async with (
            stage.market(trade, 40) as market,
            remembered(market, tally),
            stage.proxy() as proxy,
            stage.operator(market, proxy),
        ):
            churn = Churn(market, stage.random, 20)
            proxy.plan = Plan(before=half_of_them(stage.random))
            started_at = time.monotonic()
            while time.monotonic() - started_at < CONFLICT_SECONDS * tally.haste:
                await churn.run(1, 0.1)
            proxy.plan = Plan()
            busiest = _busiest(proxy, market)
            tally.add([*await churn.settle(30.0 * tally.haste), *busiest, *await falls_silent(proxy)])


def half_of_them(random: Random) -> Ask:
    async def refuse(write: Write) -> Verdict:
        return Say(409, "Conflict") if write.counts and random.random() < 0.5 else Pass()

    return refuse


def _busiest(proxy: FaultProxy, market: Market) -> list[str]:
    """Objects that were written to more often than five times a second, over any few seconds. A page on which
    everybody's lease is has as many writes as there are comers and goers."""
    page = market.trade.page.path(market.namespace) if market.trade.page else None
    written = [write for write in proxy.writes if write.counts and write.method != "POST"]
    written = [write for write in written if page is None or not write.path.startswith(page)]
    most = round(WRITES_A_SECOND * WINDOW_SECONDS)
    return [
        f"{path} was written more than {most} times in {WINDOW_SECONDS:g} s"
        for (path, _), at in by_object(written, proxy.answers).items()
        if any(last - first < WINDOW_SECONDS for first, last in zip(at, at[most:], strict=False))
    ]


def by_object(writes: Iterable[Write], answers: Mapping[int, int]) -> dict[tuple[str, int], list[float]]:
    """When each was written to. An address that is given out again is another object of the same name: one
    ends when it is let go, which is the only PUT there is.
    """
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    earlier: Counter[str] = Counter()
    for write in writes:
        path = write.path.removesuffix("/status")
        times[path, earlier[path]].append(write.at)
        earlier[path] += write.method == "PUT" and answers.get(write.number) == 200
    return times


async def lost_answers(stage: Stage, tally: Tally, writes: int, trade: Trade) -> None:
    """T14: 429, 5xx and answers cut off after the fact, at 1 to 30 %; two operators, so that blind undoing
    would hit another's lease."""
    async with AsyncExitStack() as stack:
        market = await stack.enter_async_context(stage.market(trade, 60))
        await stack.enter_async_context(watched(stage, market, tally))
        proxies = [await stack.enter_async_context(stage.proxy()) for _ in range(2)]
        for proxy in proxies:
            proxy.plan = unreliable(stage.random, stage.random.uniform(0.01, 0.3))
            await stack.enter_async_context(stage.operator(market, proxy))
        churn = Churn(market, stage.random, 40, hasty=bool(tally.wanted))
        while tally.tried < writes and not tally.is_over:
            await churn.run(20)
            tally.tried = sum(len(proxy.writes) for proxy in proxies)
            await asyncio.sleep(0.1)
        for proxy in proxies:
            proxy.plan = Plan()
        tally.violations += await churn.settle(60.0)


def unreliable(random: Random, share: float) -> Plan:
    async def before(write: Write) -> Verdict:
        if random.random() >= share / 2:
            return Pass()
        throttled = Say(429, "TooManyRequests", {"Retry-After": "1"})
        return random.choice((throttled, Say(500, "InternalError"), Say(503, "ServiceUnavailable"), Cut()))

    async def after(write: Write) -> Verdict:
        if random.random() >= share / 2:
            return Pass()
        await asyncio.sleep(random.uniform(0.0, LATE_SECONDS))  # others see what was written meanwhile
        return random.choice((Cut(), Say(504, "Timeout")))

    return Plan(before, after)
