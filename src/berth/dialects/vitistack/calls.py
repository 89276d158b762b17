"""The way to the IPAM-API: the documented calls, one by one as long as that is quick enough.

Calls that come while others are under way wait for the next turn and go together (our own IPAM-API's
`/v2/batch`): a flood of Services costs it a few requests. An IPAM-API that has no such call, upstream's for
one, is asked one by one for good.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from berth.central.client import ApiClient, Ask, registration
from berth.dialects.vitistack.crowd import Crowd
from berth.errors import ApiDown, ApiRefused
from berth.metrics import Metrics
from berth.secret import Secret

Object = dict[str, Any]
AT_ONCE = 2  # requests of several calls under way
SINGLES = 4  # calls under way before others wait to go together
TOGETHER = 128
GATHER_SECONDS = 0.02  # in a crowd
UNKNOWN_CALL = (404, 405)
Waiting = tuple[str, Object, "asyncio.Future[Object]"]


class Calls:
    def __init__(self, api: ApiClient, metrics: Metrics, crowd: Crowd) -> None:
        self._api = api
        self._metrics = metrics
        self._crowd = crowd
        self._batches = True  # until the IPAM-API says it does not know them
        self._waiting: list[Waiting] = []
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def register(self, ask: Ask, *, pending: bool = False, new_secret: Secret | None = None) -> str:
        answer = await self._call("POST", registration(ask, pending, new_secret))
        return str(answer.get("address", ""))

    async def release(self, ask: Ask) -> None:
        await self._call("DELETE", ask.body())

    async def _call(self, method: str, body: Object) -> Object:
        started, code = time.perf_counter(), 0
        try:
            answer = await (self._alone if self._is_quick() else self._together)(method, body)
            code = 200
            return answer
        except ApiRefused as no:
            code = no.status
            raise
        finally:
            name = "register" if method == "POST" else "release"
            self._metrics.ipam_call(name, code, time.perf_counter() - started)

    def _is_quick(self) -> bool:
        if not self._batches:
            return True
        return self._under_way < SINGLES and not self._waiting and not self._crowd.is_here

    async def _alone(self, method: str, body: Object) -> Object:
        self._under_way += 1
        try:
            return await self._api.call(method, body)
        finally:
            self._under_way -= 1
            self._go_on()

    async def _together(self, method: str, body: Object) -> Object:
        answer: asyncio.Future[Object] = asyncio.get_running_loop().create_future()
        self._waiting.append((method, body, answer))
        self._go_on()
        return await answer

    def _go_on(self) -> None:
        if self._waiting and len(self._tasks) < AT_ONCE:
            # A task of its own: whoever gives up waiting takes nobody else's call along.
            task = asyncio.create_task(self._send())
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._go_on()

    async def _send(self) -> None:
        await self._crowd.gather(GATHER_SECONDS, len(self._waiting))
        group, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
        group = [one for one in group if not one[2].done()]  # given up before its turn came
        try:
            found = await self._answers(group)
        except (ApiDown, ApiRefused) as error:
            found = [error] * len(group)
        for (_, _, future), answer in zip(group, found, strict=True):
            if future.done():
                continue
            if isinstance(answer, ApiDown | ApiRefused):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _answers(self, group: list[Waiting]) -> list[Object | ApiDown | ApiRefused]:
        if self._batches and len(group) > 1:
            try:
                return [*await self._api.batch([(method, body) for method, body, _ in group])]
            except ApiRefused as no:
                if no.status not in UNKNOWN_CALL:
                    raise
                self._batches = False
        return [*await asyncio.gather(*(self._one(method, body) for method, body, _ in group))]

    async def _one(self, method: str, body: Object) -> Object | ApiDown | ApiRefused:
        try:
            return await self._api.call(method, body)
        except (ApiDown, ApiRefused) as error:
            return error
