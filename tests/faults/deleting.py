"""T22 and T23: deleted and made again, held by others while it goes, deleted while nobody is there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

from tests.faults.churn import Churn
from tests.faults.proxy import Ask, FaultProxy, Pass, Plan, Verdict, Write
from tests.faults.row import Tally
from tests.faults.scales import HASTY_JANITORS
from tests.faults.stage import Stage, until
from tests.faults.trade import Market, Snapshot, Trade
from tests.faults.witness import remembered

from berth.errors import AlreadyExists
from berth.kube.resource import Resource

HOLDS = "example.com/in-use"
GONE_SECONDS = 60.0
LATE_SECONDS = 0.7
LATE_ANSWER_SECONDS = 0.3


async def recreated(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    """T22: the same name again, as soon as the API server takes it; the pool is just large enough."""
    async with stage.market(trade, 4) as market, remembered(market, tally), stage.operator(market):
        await _recreate(stage, tally, times, market)


async def recreated_beside_a_late_one(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    """T22: a second operator at work hears of claims late: to it the earlier one of that name has just gone,
    when the later one has its address already."""
    async with (
        stage.market(trade, 4) as market,
        remembered(market, tally),
        stage.proxy() as proxy,
        stage.operator(market),
        stage.operator(market, proxy),
    ):
        assert await until(lambda: _watches(proxy, len(trade.resources)), 60)
        for name in ("a", "k"):
            proxy.streams.come_late(trade.claim(name)[0].path(market.namespace), LATE_SECONDS)
        await _recreate(stage, tally, times, market)


async def _watches(proxy: FaultProxy, kinds: int) -> bool:
    return len(proxy.streams) >= kinds


async def _recreate(stage: Stage, tally: Tally, times: int, market: Market) -> None:
    churn = Churn(market, stage.random, 4)
    churn.alive = ["a1", "a2"]
    for name in churn.alive:
        await market.ask(name)
    for _ in range(times):
        if tally.is_over:
            return
        name = stage.random.choice(churn.alive)
        if stage.random.random() < 0.5:
            await market.drop(name)
        await _again(market, name)
        tally.add(await churn.settle(GONE_SECONDS))


async def _again(market: Market, name: str) -> None:
    await market.drop(name)

    async def is_made() -> bool:
        with suppress(AlreadyExists):
            await market.ask(name)
            return True
        return False

    assert await until(is_made, GONE_SECONDS), f"I8: {name} never went"


async def held_by_another(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    """T22: who deletes a claim that someone else's finalizer holds keeps its address until that goes."""
    async with stage.market(trade, 3) as market, remembered(market, tally), stage.operator(market):
        for number in range(times):
            churn = Churn(market, stage.random, 3)
            churn.alive = [f"a{number}-0", f"a{number}-1"]
            await market.ask(churn.alive[0], finalizers=[HOLDS])
            await market.ask(churn.alive[1])
            found = await churn.settle()
            tally.add([*found, *await _held(market, churn, churn.alive[0])])


async def _held(market: Market, churn: Churn, name: str) -> list[str]:
    """One of two newcomers gets what is free, the other what the neighbour gives back afterwards. By then an
    operator that takes the held one's address away has done so."""
    neighbour, newcomers = churn.alive[1], [f"{name}-n{number}" for number in range(2)]
    await market.drop(name)
    for newcomer in newcomers:
        await market.ask(newcomer)
    told = await until(lambda: _is_told(market, newcomers), GONE_SECONDS)
    await market.drop(neighbour)
    served = await until(lambda: market.all_answered(newcomers), GONE_SECONDS)
    found = [] if told and served else [f"I4: {newcomers} waited in vain"]
    found += market.trade.broken(_as_if_it_stayed(await market.snapshot(), name))
    await _let_go(market, name)
    churn.alive = newcomers
    found += await churn.settle(GONE_SECONDS)
    await churn.drop(2)
    return [*found, *await churn.settle(GONE_SECONDS)]


async def _is_told(market: Market, names: list[str]) -> bool:
    """One gets what is free, the other hears why it waits."""
    shown = await market.shown()
    return all(shown[name].answer or shown[name].reason for name in names)


def _as_if_it_stayed(seen: Snapshot, name: str) -> Snapshot:
    """Who is held has all the rights of those who were never asked to go."""
    for obj in (one for objects in seen.values() for one in objects):
        if obj["metadata"]["name"] == name:
            obj["metadata"].pop("deletionTimestamp", None)
    return seen


async def _let_go(market: Market, name: str) -> None:
    resource, _ = market.trade.claim(name)
    found = await market.client.get(resource, name, market.namespace)
    left = [one for one in found["metadata"]["finalizers"] if one != HOLDS]
    await market.client.patch(resource, name, {"metadata": {"finalizers": left}}, market.namespace)


async def while_away(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    """T23: the operator is killed, claims go and come, the next one cleans up within a minute. One of the
    lists it starts with comes later than the others: until it is there, nobody knows who has what. Answers
    to its writes come late, too: by then a watch may have shown what became of them."""
    stage = stage.with_plants(HASTY_JANITORS)
    late = sorted({group_path(resource) for resource in trade.resources})
    async with stage.market(trade, 28) as market, remembered(market, tally), stage.proxy() as proxy:
        churn = Churn(market, stage.random, 8)
        await _settle_in(stage, market, churn)
        proxy.plan = Plan(after=late_answers(stage.random))
        for number in range(times):
            if tally.is_over:
                return
            proxy.slow_reads = {late[number % len(late)]: LATE_SECONDS}
            await churn.drop(2)
            await churn.run(6)
            async with stage.operator(market, proxy):
                tally.add(await churn.settle(GONE_SECONDS))
                await churn.ask(2)
                await churn.run(6)


def late_answers(random: Random) -> Ask:
    async def after(write: Write) -> Verdict:
        await asyncio.sleep(random.uniform(0.0, LATE_ANSWER_SECONDS))
        return Pass()

    return after


async def _settle_in(stage: Stage, market: Market, churn: Churn) -> None:
    """Some of each kind have the first addresses of the pool from before, and keep them."""
    churn.kept = ("k-1", "a-1", "k-2")
    for name in churn.kept:
        await market.ask(name)
    async with stage.operator(market):
        some = tuple(await churn.ask(4))
        assert await until(lambda: market.all_answered((*churn.kept, *some)), GONE_SECONDS)


def group_path(resource: Resource) -> str:
    return f"/apis/{resource.group}/" if resource.group else f"/api/{resource.version}"
