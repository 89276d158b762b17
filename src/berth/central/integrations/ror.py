"""ROR's event stream: the API opens it, ROR says which cluster is gone, and that cluster's services are
released as by `DELETE /v2/cluster`, retention and deny flag honoured, and not before a grace period where one
is set: an event may be wrong, and until an entry is swept a person's undo, the holder itself or its
operator's report takes it back. More than a few clusters an hour are not believed: the ledger counts, for all
replicas. Resumes with Last-Event-ID also after a restart, reconnects with growing pauses, and neither garbage
nor repetition has an effect. Nothing is followed: redirects are refused, no address comes from an event.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson

from berth.backoff import Backoff
from berth.central.integrations.event_log import EventLog
from berth.central.integrations.sse import ID, Endless, EventParser, ServerEvent
from berth.central.metrics import ApiMetrics
from berth.central.settings import Ror
from berth.central.tokens import RotatedToken
from berth.errors import StoreDown
from berth.store import kv
from berth.store.clusters import Flooded, Order, release_cluster
from berth.store.engine import Engine

MARK = "ror-last-event-id"
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
NOT_SOON = Backoff(LONGEST_PAUSE, LONGEST_PAUSE, jitter=0.5)
PUBLISHED = ("connection.id", "time", "cluster.created", "clusterOrder.updated")
KEYS = ("cluster_id", "clusterId", "uid", "id")
CLUSTER = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")
PORTION = 16 * 1024  # of the stream, before others have a turn on the event loop


class Listener:
    def __init__(
        self, settings: Ror, engine: Engine, metrics: ApiMetrics, journal: EventLog | None = None
    ) -> None:
        self._settings = settings
        self._journal = journal or EventLog()
        self._token = RotatedToken(settings.token_file) if settings.token_file else None
        self._engine = engine
        self._metrics = metrics
        self._backoff = backoff_of(None)  # before the next connection
        self._failures = 0

    async def listen_forever(self) -> None:
        while True:
            try:
                await self._listen()
            except (aiohttp.ClientError, OSError, TimeoutError, StoreDown, Flooded, ValueError) as cause:
                self._backoff = NOT_SOON if isinstance(cause, Flooded | Endless) else self._backoff
                what = {"cause": type(cause).__name__, "pause_seconds": self._backoff.delay(self._failures)}
                self._tell("event stream lost", level="warn", **what)
            self._metrics.ror_connected.set(0)
            await asyncio.sleep(self._backoff.delay(self._failures, random.random()))
            self._failures += 1

    async def _listen(self) -> None:
        """Follow one connection to its end."""
        parser = EventParser()
        parser.last_id = await self._remembered()
        async for event in self._events(parser):
            await self._handle(event)
            await self._remember(event.id)

    async def _events(self, parser: EventParser) -> AsyncIterator[ServerEvent]:
        url = self._settings.url.rstrip("/") + self._settings.path
        silence = aiohttp.ClientTimeout(total=None, connect=10, sock_read=self._settings.silence_seconds)
        async with (
            aiohttp.ClientSession(timeout=silence) as session,
            session.get(url, headers=self._headers(parser.last_id), allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise aiohttp.ClientError(f"status {response.status}")
            self._metrics.ror_connected.set(1)
            self._backoff, self._failures = backoff_of(None), 0
            async for chunk in response.content.iter_chunked(PORTION):
                for event in parser.feed(chunk):
                    yield event
                self._backoff = backoff_of(parser.retry_ms)
                await asyncio.sleep(0)  # what was read already comes without a wait

    def _headers(self, last_id: str) -> dict[str, str]:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
        if self._token is not None:
            headers["X-API-KEY"] = self._token.read()
        if last_id:
            headers["Last-Event-ID"] = last_id
        return headers

    async def _handle(self, event: ServerEvent) -> None:
        name, data = unwrapped(event)
        if name not in self._settings.events:
            self._count(name, "ignored")
            return
        cluster = cluster_of(data)
        if cluster is None:
            self._count(name, "unreadable")
            self._tell("event without a cluster", level="warn", name=name)
            return
        try:
            done = await release_cluster(self._engine, self._order(cluster, event))
        except Flooded:
            self._count(name, "held back")
            raise
        result = "repeated" if done.repeated else "unknown" if not done.found else "released"
        self._count(name, result)
        self._tell("cluster event", result=result, cluster_id=cluster, expired=done.expired)

    def _order(self, cluster: str, event: ServerEvent) -> Order:
        identity = f"ror:{event.own_id}" if event.own_id else ""
        grace_ms = round(self._settings.grace_seconds * 1000)
        most = self._settings.clusters_per_hour
        return Order(cluster, "ror", event_id=identity, grace_ms=grace_ms, most_per_hour=most)

    def _tell(self, message: str, **fields: Any) -> None:
        self._journal.tell(message, "central/ror", **fields)

    def _count(self, name: str, result: str) -> None:
        """By names we know only: a stream must not be able to make metrics without end."""
        known = name in self._settings.events or name in PUBLISHED
        self._metrics.ror_events.labels(name if known else "other", result).inc()

    async def _remembered(self) -> str:
        """An older version kept any id: one that cannot be a header must not keep us from connecting."""
        async with self._engine.snapshot() as tx:
            kept = await kv.mark(tx, MARK)
        return kept if ID.fullmatch(kept) else ""

    async def _remember(self, event_id: str) -> None:
        if event_id:
            async with self._engine.transaction() as tx:
                await kv.set_mark(tx, MARK, event_id)


def backoff_of(retry_ms: int | None) -> Backoff:
    """From what the server asks for, within reason."""
    asked = (retry_ms or 0) / 1000
    return Backoff(min(max(asked, SHORTEST_PAUSE), LONGEST_PAUSE), LONGEST_PAUSE, jitter=0.5)


def unwrapped(event: ServerEvent) -> tuple[str, Any]:
    """Name and data of either frame form: the name on its own line, or inside the data (v1)."""
    data = _json(event.data)
    if event.event == "message" and isinstance(data, dict) and isinstance(data.get("event"), str):
        inner = data.get("data")
        return data["event"], _json(inner) if isinstance(inner, str) else inner
    return event.event, data


def cluster_of(data: Any) -> str | None:
    """The cluster's id: a key of an object, or the bare text."""
    found = next((data[key] for key in KEYS if data.get(key)), None) if isinstance(data, dict) else data
    return found if isinstance(found, str) and CLUSTER.fullmatch(found) else None


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text.strip()
