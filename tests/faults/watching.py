"""T12: everything that can happen to a watch; what was missed meanwhile is found within ten seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.faults.churn import Churn
from tests.faults.proxy import FaultProxy
from tests.faults.row import Tally
from tests.faults.scales import SHORT_SILENCE
from tests.faults.stage import Stage, falls_silent
from tests.faults.streams import HALF_A_LINE, error_event
from tests.faults.trade import Trade
from tests.faults.witness import remembered

FOUND_SECONDS = 10.0
Fault = Callable[[FaultProxy], Awaitable[None]]


async def cut(proxy: FaultProxy) -> None:
    proxy.streams.cut()


async def half_open(proxy: FaultProxy) -> None:
    proxy.streams.leave_half_open()


async def gone_event(proxy: FaultProxy) -> None:
    await proxy.streams.end_with(error_event(410, "Expired"), cleanly=True)


async def error_event_500(proxy: FaultProxy) -> None:
    await proxy.streams.end_with(error_event(500, "InternalError"), cleanly=True)


async def cut_line(proxy: FaultProxy) -> None:
    await proxy.streams.end_with(HALF_A_LINE, cleanly=False)


async def ends_in_a_line(proxy: FaultProxy) -> None:
    await proxy.streams.end_with(HALF_A_LINE, cleanly=True)


async def empty_answers(proxy: FaultProxy) -> None:
    proxy.streams.answer_next(2 * len(proxy.streams), 200)
    proxy.streams.cut()


async def gone_answers(proxy: FaultProxy) -> None:
    proxy.streams.answer_next(len(proxy.streams), 410)
    proxy.streams.cut()


async def compacted(proxy: FaultProxy) -> None:
    proxy.streams.forget_before(await proxy.revision())


FAULTS: tuple[Fault, ...] = (
    *(compacted, cut, half_open, gone_event, error_event_500),
    *(cut_line, ends_in_a_line, empty_answers, gone_answers),
)
# Others notice silence after minutes, and nobody can scale that: it is no fault of theirs.
OTHERS_FAULTS = tuple(fault for fault in FAULTS if fault is not half_open)


async def watch_faults(stage: Stage, tally: Tally, tries: int, trade: Trade) -> None:
    scaled = stage.with_plants(SHORT_SILENCE)
    async with (
        scaled.market(trade, 30) as market,
        remembered(market, tally),
        scaled.proxy() as proxy,
        scaled.operator(market, proxy),
    ):
        faults = FAULTS if stage.controller is None else OTHERS_FAULTS
        churn = Churn(market, stage.random, 12)
        await churn.ask(4)
        tally.violations += await churn.settle()
        for number in range(tries):
            if tally.is_over:
                break
            fault = faults[number % len(faults)]
            await fault(proxy)
            await churn.run(2)
            tally.add(await churn.settle(FOUND_SECONDS * tally.haste), fault.__name__)
            proxy.streams.heal()
        tally.violations += await falls_silent(proxy)


async def compacted_for_good(stage: Stage, tally: Tally, tries: int, trade: Trade) -> None:
    """The real thing: etcd forgets, the API server starts anew, and whoever was away is told 410."""
    async with stage.market(trade, 30) as market, stage.proxy() as proxy, stage.operator(market, proxy):
        churn = Churn(market, stage.random, 12)
        await churn.ask(4)
        tally.violations += await churn.settle()
        for _ in range(tries):
            with proxy.away():
                await churn.run(6)
                await stage.cluster.compact_etcd()
            tally.add(await churn.settle(FOUND_SECONDS))
        tally.violations += await falls_silent(proxy)
