"""Load: claims come and go at random, by one seed; whoever asks repeats by name until the answer is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

from tests.faults.history import History, Outcome
from tests.faults.stage import until
from tests.faults.trade import Market, Shown, Snapshot

from berth.errors import AlreadyExists, KubeError, NotFound

AWAY_SECONDS = 120.0
LATE_COMERS = 3  # looks, before what is left over counts as lost


class Churn:
    def __init__(self, market: Market, random: Random, most: int, *, hasty: bool = False) -> None:
        self.market = market
        self.hasty = hasty  # what is wrong already is not waited for any longer
        self.alive: list[str] = []
        self.kept: tuple[str, ...] = ()  # there from before, and never dropped
        self.history = History()
        self._wrong: list[str] = []
        self._asked_at: dict[str, float] = {}
        self._random = random
        self._most = most
        self._asked = 0

    async def run(self, steps: int, pause_seconds: float = 0.0) -> None:
        for _ in range(steps):
            await self.step()
            await asyncio.sleep(pause_seconds)

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """While the block lasts. Told to stop, not cancelled: who dropped or asked for something knows it."""
        over = asyncio.Event()

        async def go_on() -> None:
            while not over.is_set():
                await self.run(1, 0.02)

        async with asyncio.TaskGroup() as group:
            group.create_task(go_on())
            try:
                yield
            finally:
                over.set()

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
        await asyncio.gather(*(self._surely(self._drop, name) for name in going))

    async def _create(self, name: str) -> None:
        self._asked_at.setdefault(name, time.monotonic())
        with suppress(AlreadyExists):
            await self.market.ask(name)

    async def _drop(self, name: str) -> None:
        invoked, outcome = time.monotonic(), Outcome.UNKNOWN
        try:
            await self.market.drop(name)
            outcome = Outcome.OK
        finally:
            self.history.note(name, "give", outcome, invoked)

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
        for _ in range(LATE_COMERS):
            if not await until(self._is_settled, seconds):
                return [f"I4: after {seconds:g} s {await self._open()}", *await self.market.violations()]
            seen = await self.market.snapshot()
            if wrong := [*self._wrong, *self._judged(seen)]:
                return wrong
            # An operator that hears late takes something for one who was served by another, and gives it back
            # when it hears: lost is only what stays.
            if not (litter := self.market.trade.litter(seen)):
                return []
        return litter

    def _judged(self, seen: Snapshot) -> list[str]:
        """What is stored, by itself and against what whoever asked and dropped here knows."""
        known = {call.who for call in self.history.calls}
        stored = {one.name: one.answer for one in self.market.trade.shown(seen) if one.name in known}
        return [*self.market.wrong(seen), *self.history.violations(stored)]

    async def _is_settled(self) -> bool:
        try:
            seen = await self.market.snapshot()
        except KubeError:
            return False
        if self.hasty and (wrong := self.market.wrong(seen)):
            self._wrong = wrong
            return True
        shown = self._note(seen)
        if set(shown) != {*self.alive, *self.kept} or not all(one.answer for one in shown.values()):
            return False
        return not self.market.trade.litter(seen)

    def _note(self, seen: Snapshot) -> dict[str, Shown]:
        shown = self.market.note(seen)
        for name in [name for name in self._asked_at if name in shown and shown[name].answer]:
            invoked = self._asked_at.pop(name)
            if not shown[name].going:
                self.history.note(name, "take", Outcome.OK, invoked, shown[name].answer)
        return shown

    async def _open(self) -> str:
        shown = await self.market.shown()
        waiting = [f"{one.name} ({one.reason})" for one in shown.values() if not one.answer][:5]
        going = [name for name in shown if name not in {*self.alive, *self.kept}][:5]
        return f"waiting: {waiting}, not gone: {going}"
