"""The line between operator and IPAM-API: counts calls, and does to each what a plan says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

import aiohttp
import orjson
from aiohttp import web

HEARTBEATS = ("/v2/inventory", "/v2/heartbeat")  # come whenever it is time, so they have no number
BATCH = "/v2/batch"


class Fate(StrEnum):
    PASS = "pass"
    CUT = "cut"  # before the API sees it
    LOSE = "lose"  # it has its effect, the answer is lost
    BUSY = "429"
    DOWN = "503"


Plan = Callable[[int], Awaitable[Fate]]


async def let_through(number: int) -> Fate:
    return Fate.PASS


@dataclass(slots=True)
class Each:
    """Spoils calls of each Service by their numbers, counted for each by itself."""

    fates: dict[str, dict[int, Fate]] = field(default_factory=dict)  # by Service and number
    calls: Counter[str] = field(default_factory=Counter)
    spoiled: Counter[str] = field(default_factory=Counter)

    def fate(self, name: str) -> Fate:
        self.calls[name] += 1
        fate = self.fates.get(name, {}).get(self.calls[name], Fate.PASS)
        self.spoiled[name] += fate is not Fate.PASS
        return fate

    def is_through(self, name: str) -> bool:
        """Whether all that was planned for it was done."""
        return self.spoiled[name] == len(self.fates.get(name, {}))


@dataclass(slots=True)
class Line:
    target: str  # the API's address without /v2
    before: Plan = let_through
    after: Plan = let_through  # once the API has answered; LOSE and CUT are the same here
    each: Each | None = None  # then every call comes by itself: several in one would share their fate
    calls: int = 0
    spoiled: int = 0
    session: aiohttp.ClientSession | None = field(default=None, repr=False)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in HEARTBEATS:
            return await self._forward(request)
        if self.each is not None and request.path == BATCH:
            return web.json_response({"message": "no such call"}, status=404)
        self.calls += 1
        number = self.calls
        fate = self.each.fate(await _service(request)) if self.each is not None else await self.before(number)
        if fate in (Fate.BUSY, Fate.DOWN):
            self.spoiled += 1
            return web.json_response({"message": "said by the line"}, status=int(fate))
        if fate is Fate.CUT:
            return self._cut(request)
        answer = await self._forward(request)
        lost = fate is Fate.LOSE or await self.after(number) is not Fate.PASS
        return self._cut(request) if lost else answer

    async def _forward(self, request: web.BaseRequest) -> web.StreamResponse:
        assert self.session is not None
        try:
            async with self.session.request(
                request.method, self.target + request.path, data=await request.read()
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, ConnectionError):
            return self._cut(request)
        return web.Response(status=answer.status, body=body, content_type="application/json")

    def _cut(self, request: web.BaseRequest) -> web.StreamResponse:
        self.spoiled += 1
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


async def _service(request: web.BaseRequest) -> str:
    return str(orjson.loads(await request.read())["service"]["service_name"])


@asynccontextmanager
async def line(api_url: str) -> AsyncIterator[tuple[Line, str]]:
    """To this API; the address is what the operator is told instead."""
    async with aiohttp.ClientSession() as session:
        made = Line(api_url.removesuffix("/v2"), session=session)
        runner = web.ServerRunner(web.Server(made, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield made, f"http://127.0.0.1:{runner.addresses[0][1]}/v2"
        finally:
            await runner.cleanup()


def at_random(share: float, seed: int) -> Plan:
    """Every kind of fault, in this share of all calls."""
    random = Random(seed)
    faults = [fate for fate in Fate if fate is not Fate.PASS]

    async def plan(number: int) -> Fate:
        return random.choice(faults) if random.random() < share else Fate.PASS

    return plan


async def hang(number: int) -> Fate:
    """Never an answer."""
    await asyncio.get_running_loop().create_future()
    return Fate.CUT
