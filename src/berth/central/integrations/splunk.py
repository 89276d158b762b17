"""Forwards the journal to Splunk's HTTP Event Collector: in batches, from the spool, with growing
pauses while it is away. An event leaves the spool when Splunk has said yes to it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aiohttp
import orjson

from berth import log
from berth.backoff import Backoff
from berth.central.integrations.disk_queue import DiskQueue
from berth.central.metrics import ApiMetrics
from berth.central.settings import Splunk
from berth.central.tokens import RotatedToken

BATCH = 200
GATHER_SECONDS = 0.2
BACKOFF = Backoff(GATHER_SECONDS, 30.0, jitter=0.5)
SEND_SECONDS = 5.0


class Forwarder:
    def __init__(self, settings: Splunk, spool: DiskQueue, metrics: ApiMetrics) -> None:
        self._settings = settings
        self._spool = spool
        self._metrics = metrics
        assert settings.token_file is not None
        self._token = RotatedToken(settings.token_file)
        self._url = settings.url.rstrip("/") + "/services/collector/event"

    async def store_forever(self) -> None:
        while True:
            await asyncio.sleep(GATHER_SECONDS)
            await self._spool.store()
            self._metrics.hec_queue.set(self._spool.length)

    async def forward_forever(self) -> None:
        timeout = aiohttp.ClientTimeout(total=SEND_SECONDS)
        failures = 0
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                sent = await self._forward(session)
                failures = 0 if sent else failures + 1
                if not sent or sent < BATCH:
                    await asyncio.sleep(BACKOFF.delay(failures, random.random()))

    async def _forward(self, session: aiohttp.ClientSession) -> int | None:
        """One batch; how many events went, None when they could not."""
        try:
            batch = await self._spool.oldest(BATCH)
            if not batch:
                return 1
            taken = await self._deliver(session, [self._event(body) for _, body in batch])
            await self._spool.remove(batch[-1][0])
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as cause:
            log.get("berth.splunk").warning("Splunk is away", cause=type(cause).__name__)
            return None
        self._metrics.hec_sent.inc(taken)
        self._metrics.hec_dropped.inc(len(batch) - taken)
        return len(batch)

    async def _deliver(self, session: aiohttp.ClientSession, events: list[bytes]) -> int:
        """A batch that Splunk calls wrong, or too large, is sent one by one: what it never takes must not
        stop the rest. Returns how many it took.
        """
        if await self._post(session, b"\n".join(events)):
            return len(events)
        return sum([await self._post(session, event) for event in events])

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> bool:
        """True when taken, False when it is wrong in Splunk's eyes and always will be."""
        headers = {"Authorization": f"Splunk {self._token.read()}"}
        async with session.post(self._url, data=body, headers=headers, allow_redirects=False) as response:
            await response.read()
            if response.status not in (200, 400, 413):
                raise aiohttp.ClientError(f"status {response.status}")
            return response.status == 200

    def _event(self, body: bytes) -> bytes:
        kept: dict[str, Any] = orjson.loads(body)
        return orjson.dumps(
            {
                "event": kept["event"],
                "time": kept["time"],
                "host": "ipam-api",
                "source": self._settings.source,
                "sourcetype": f"ipam-api:{kept['kind']}",
                "index": self._settings.index,
            }
        )
