"""Load: claims come and go at random, by one seed; whoever asks repeats by name until the answer is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

from tests.faults.stage import until
from tests.faults.trade import Market

from berth.errors import AlreadyExists, KubeError, NotFound

AWAY_SECONDS = 60.0


class Churn:
    def __init__(self, market: Market, random: Random, most: int) -> None:
        self.market = market
        self.alive: list[str] = []
        self._random = random
        self._most = most
        self._asked = 0

    async def run(self, steps: int, pause_seconds: float = 0.0) -> None:
        for _ in range(steps):
            await self.step()
            await asyncio.sleep(pause_seconds)

    async def go_on(self) -> None:
        """Until cancelled."""
        while True:
            await self.run(1, 0.02)

    async def step(self) -> None:
        share = len(self.alive) / self._most
        if self._random.random() >= share:
            await self.ask()
        else:
            await self.drop()

    async def ask(self, count: int = 1) -> list[str]:
        names = [f"{self._random.choice('ak')}{self._asked + number}" for number in range(count)]
        self._asked += count
        await asyncio.gather(*(self._surely(self._create, name) for name in names))
        self.alive += names
        return names

    async def drop(self, count: int = 1) -> None:
        going = self._random.sample(self.alive, min(count, len(self.alive)))
        self.alive = [name for name in self.alive if name not in going]
        await asyncio.gather(*(self._surely(self.market.drop, name) for name in going))

    async def _create(self, name: str) -> None:
        with suppress(AlreadyExists):
            await self.market.ask(name)

    async def _surely(self, act: Callable[[str], Awaitable[None]], name: str) -> None:
        """No answer is no answer: asked again under the same name until there is one."""

        async def is_done() -> bool:
            try:
                await act(name)
            except NotFound:
                raise
            except KubeError:
                return False
            return True

        assert await until(is_done, AWAY_SECONDS), f"the API server stayed away: {name}"

    async def settle(self, seconds: float = 30.0) -> list[str]:
        """I4: everyone has an answer, whoever goes is gone, nothing is left over. Then all the others."""
        seconds *= self.market.patience
        if await until(self._is_settled, seconds):
            return await self.market.violations()
        return [f"I4: after {seconds:g} s {await self._open()}", *await self.market.violations()]

    async def _is_settled(self) -> bool:
        try:
            seen = await self.market.snapshot()
        except KubeError:
            return False
        shown = self.market.note(seen)
        if set(shown) != set(self.alive) or not all(one.answer for one in shown.values()):
            return False
        return not self.market.trade.litter(seen)

    async def _open(self) -> str:
        shown = await self.market.shown()
        waiting = [f"{one.name} ({one.reason})" for one in shown.values() if not one.answer][:5]
        going = [name for name in shown if name not in self.alive][:5]
        return f"waiting: {waiting}, not gone: {going}"
