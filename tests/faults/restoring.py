"""T37: all is gone, and back from files of `kubectl get -o yaml` in any order: nobody's address moves.

An operator runs from before, or from afterwards, or is killed in between. Newcomers ask as soon as all is
back; of a dialect whose pools remember whose their addresses are, at any time.
"""

from __future__ import annotations

import asyncio

from tests.faults.churn import Churn
from tests.faults.row import Tally
from tests.faults.stage import Stage, until
from tests.faults.trade import Market, Snapshot, Trade
from tests.support.cluster import Kubectl
from tests.support.restoring import export, restore, wipe

from berth.kube import meta

WAYS = ("from before", "from afterwards", "killed in between")
REST_SECONDS = 1.5  # longer than anything that is written later than its cause
HEAL_SECONDS = 60.0


async def from_files(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    for number in range(times):
        if tally.is_over:
            return
        way = stage.random.choice(WAYS)
        async with stage.market(trade, 40) as market:
            tally.add(await _try(stage, market, way), f"try {number}, {way}")


async def _try(stage: Stage, market: Market, way: str) -> list[str]:
    kubectl, trade = Kubectl(stage.cluster), market.trade
    churn = Churn(market, stage.random, 20)
    async with stage.operator(market):
        await churn.ask(12)
        found = await churn.settle()
        await churn.drop(4)  # holes, so that the order of asking does not tell who has what
        found += await churn.settle()
        found += await _comes_to_rest(market)
    had = {one.name: one.answer for one in (await market.shown()).values()}
    files = await export(kubectl, trade.resources, market.namespace)
    await wipe(stage.client, trade.resources, market.namespace)
    stage.random.shuffle(files)
    half = stage.random.randrange(len(files))
    if way != "from afterwards":
        async with stage.operator(market) as running:
            await restore(kubectl, files[:half])
            if way == "killed in between":
                running.kill()
            else:
                if trade.page is not None:
                    await churn.ask(2)
                await restore(kubectl, files[half:])
                await _settle(churn, market, had, found)
    else:
        await restore(kubectl, files[:half])
    if way != "from before":
        await restore(kubectl, files[half:])
        async with stage.operator(market):
            await _settle(churn, market, had, found)
    return found


async def _settle(churn: Churn, market: Market, had: dict[str, str], found: list[str]) -> None:
    await churn.ask(2)
    churn.history.calls.clear()  # the answers are the same; UIDs and times are not
    found += await churn.settle(HEAL_SECONDS)
    now = await market.shown()
    found += [
        f"I3: {name} had {answer} and has {now[name].answer if name in now else 'gone'}"
        for name, answer in had.items()
        if name not in now or now[name].answer != answer
    ]


async def _comes_to_rest(market: Market) -> list[str]:
    before: list[dict[str, str]] = [{}]

    async def is_still() -> bool:
        now = _versions(await market.snapshot())
        same, before[0] = now == before[0], now
        if not same:
            await asyncio.sleep(REST_SECONDS)
        return same

    rested = await until(is_still, 30.0 * market.patience)
    return [] if rested else ["I5: it never came to rest before the backup"]


def _versions(seen: Snapshot) -> dict[str, str]:
    return {meta.uid(one): meta.resource_version(one) for found in seen.values() for one in found}
