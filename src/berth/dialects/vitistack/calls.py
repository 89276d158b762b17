"""The way to the IPAM-API: the documented calls, one by one as long as that is quick enough.

Calls that come while others are under way wait for the next turn and go together (our own IPAM-API's
`/v2/batch`): a flood of Services costs it a few requests. An IPAM-API that has no such call, upstream's for
one, is asked one by one for good.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from berth.central.client import AddressCall, ApiClient, registration
from berth.control.batching import Batcher, LoadGauge, Tasks
from berth.errors import ApiDown, ApiRefused
from berth.metrics import Metrics
from berth.secret import Secret

Object = dict[str, Any]
AT_ONCE = 2  # requests of several calls under way
SINGLES = 4  # calls under way before others wait to go together
TOGETHER = 128
GATHER_SECONDS = 0.02  # under load
UNKNOWN_CALL = (404, 405)
Call = tuple[str, Object]  # method and body


class Calls:
    def __init__(self, api: ApiClient, metrics: Metrics, load: LoadGauge, tasks: Tasks) -> None:
        self._api = api
        self._metrics = metrics
        self._load = load
        self._batches = True  # until the IPAM-API says it does not know them
        self._under_way = 0
        self._batcher: Batcher[Call, Object] = Batcher(
            self._answers,
            tasks,
            fitting=lambda _: TOGETHER,
            gather=partial(load.gather, GATHER_SECONDS),
            at_once=AT_ONCE,
        )

    async def register(
        self, ask: AddressCall, *, pending: bool = False, new_secret: Secret | None = None
    ) -> str:
        answer = await self._call("POST", registration(ask, pending, new_secret))
        return str(answer.get("address", ""))

    async def release(self, ask: AddressCall) -> None:
        await self._call("DELETE", ask.body())

    async def _call(self, method: str, body: Object) -> Object:
        started, code = time.perf_counter(), 0
        try:
            if self._is_quick():
                answer = await self._alone(method, body)
            else:
                answer = await self._batcher.ask((method, body))
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
        return self._under_way < SINGLES and not len(self._batcher) and not self._load.is_high

    async def _alone(self, method: str, body: Object) -> Object:
        self._under_way += 1
        try:
            return await self._api.call(method, body)
        finally:
            self._under_way -= 1

    async def _answers(self, group: list[Call]) -> list[Object | Exception]:
        if self._batches and len(group) > 1:
            try:
                return [*await self._api.batch(group)]
            except ApiRefused as no:
                if no.status not in UNKNOWN_CALL:
                    raise
                self._batches = False
        return [*await asyncio.gather(*(self._one(*call) for call in group))]

    async def _one(self, method: str, body: Object) -> Object | Exception:
        try:
            return await self._api.call(method, body)
        except (ApiDown, ApiRefused) as error:
            return error
