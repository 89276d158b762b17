"""Kubernetes Events (core v1), as `kubectl describe` shows them, without ever standing in anybody's way.

    recorder.event(obj, "Normal", "Bound", "…")  ──▶ waiting, by key ──▶ one task writes, at a limited rate

`event()` only takes a note: it never waits and never fails. The same object, type, reason and message again
raises the count of the Event that is there. Three bounds keep a flood from the API server: a bucket for
warnings and a smaller one for the rest, a bucket per object, and a limit on what waits; warnings go first,
what does not fit is dropped, oldest first, and counted. A reconcile of the hot path emits at most one Event
per object, and the good news of a flood must not cost those who still wait: hence the smaller bucket.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from berth import log
from berth.backoff import Backoff
from berth.control.event_queue import EventTarget, Key, Pending, Type, WaitingEvent
from berth.control.kube_api import Api, Object
from berth.errors import KubeError, NotFound, NotLeader
from berth.kube.meta import Ref, timestamp
from berth.kube.resource import Resource
from berth.metrics import Metrics
from berth.token_bucket import Bucket

EVENTS = Resource("", "v1", "Event", "events")
MESSAGE_LENGTH = 1024
BACKOFF = Backoff(1.0, 30.0)
TRIES = 5
USABLE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Rates:
    """How many Events are written at most, and how much is remembered to count repetitions."""

    per_second: float = 20.0
    burst: int = 100
    normal_per_second: float = 5.0
    normal_burst: int = 25
    object_per_second: float = 1 / 30
    object_burst: int = 10
    window_seconds: float = 600.0
    waiting: int = 1000
    remembered: int = 4096


@dataclass(slots=True)
class Series:
    """An Event that is in the cluster, and how often it has happened, told or not."""

    name: str
    count: int
    told_at: float


class Recorder:
    def __init__(
        self, api: Api, metrics: Metrics, *, component: str = "berth", rates: Rates | None = None
    ) -> None:
        self._api = api
        self._metrics = metrics
        self._component = component
        self._rates = rates or Rates()
        self._clock = asyncio.get_running_loop().time
        self._warnings = Bucket(self._rates.per_second, self._rates.burst, self._clock)
        self._normals = Bucket(self._rates.normal_per_second, self._rates.normal_burst, self._clock)
        self._objects: OrderedDict[EventTarget, Bucket] = OrderedDict()
        self._series: OrderedDict[Key, Series] = OrderedDict()
        self._pending = Pending(self._rates.waiting)
        self._some = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()
        self._log = log.get("berth.events")

    def event(self, about: Ref | Mapping[str, Any], type: Type, reason: str, message: str) -> None:
        """Note that something happened to an object. A ref will do, but `kubectl describe` wants the UID."""
        key = Key(_target(about), type, reason, _clipped(message))
        now = datetime.now(UTC)
        if not self._pending.repeat(key, now) and self._may_write_about(key):
            self._expect(self._pending.add(key, WaitingEvent(now, now)))

    async def run(self) -> None:
        """Write what waits, until cancelled."""
        while True:
            await self._some.wait()
            bucket = self._warnings if self._pending.has_warnings else self._normals
            await asyncio.sleep(bucket.seconds_to_next())
            if not bucket.take():
                continue
            await self._write(*self._pending.pop())
            self._settle()

    async def drain(self, seconds: float) -> None:
        """Give what waits a little time before a clean stop; `run` must still be running."""
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            self._metrics.event_dropped("stop", len(self._pending))

    # What waits

    def _may_write_about(self, key: Key) -> bool:
        bucket = self._objects.get(key.target)
        if bucket is None:
            rates = self._rates
            bucket = Bucket(rates.object_per_second, rates.object_burst, self._clock)
            _remember(self._objects, key.target, bucket, rates.remembered)
        if bucket.take():
            return True
        self._drop(key, "object")
        return False

    def _expect(self, victim: Key | None) -> None:
        if victim is not None:
            self._drop(victim, "flood")
        if len(self._pending):
            self._some.set()
            self._none.clear()

    def _settle(self) -> None:
        if not len(self._pending):
            self._some.clear()
            self._none.set()

    def _drop(self, key: Key, cause: str) -> None:
        """Not written now; if its Event is there, the next one written tells of this one too."""
        self._metrics.event_dropped(cause)
        if key in self._series:
            self._series[key].count += 1

    # Writing

    async def _write(self, key: Key, waiting: WaitingEvent) -> None:
        try:
            await self._tell(key, waiting)
            self._metrics.event_written()
        except KubeError as error:
            await self._retry(key, waiting, error)
        except NotLeader:
            self._metrics.event_dropped("error")
        except Exception as error:
            self._metrics.event_dropped("error")
            self._log.error("event not written", error=type(error).__name__, reason=key.reason)

    async def _tell(self, key: Key, waiting: WaitingEvent) -> None:
        series = self._series.get(key)
        recent = series is not None and self._clock() - series.told_at <= self._rates.window_seconds
        if series is None or not recent or not await self._repeat(key, waiting, series):
            await self._create(key, waiting)

    async def _repeat(self, key: Key, waiting: WaitingEvent, series: Series) -> bool:
        """False if its Event is gone: they live for an hour by default, or someone cleaned up."""
        count = series.count + waiting.count
        body = {"count": count, "lastTimestamp": timestamp(waiting.last_at)}
        try:
            await self._api.patch(EVENTS, series.name, body, _namespace(key.target))
        except NotFound:
            return False
        series.count = count
        series.told_at = self._clock()
        return True

    async def _create(self, key: Key, waiting: WaitingEvent) -> None:
        event = render(key, waiting, self._component)
        await self._api.create(EVENTS, event, _namespace(key.target))
        series = Series(event["metadata"]["name"], waiting.count, self._clock())
        _remember(self._series, key, series, self._rates.remembered)

    async def _retry(self, key: Key, waiting: WaitingEvent, error: KubeError) -> None:
        """An outage is waited for, a few times; a no is a no."""
        waiting.tries += 1
        if not error.transient or waiting.tries >= TRIES:
            self._metrics.event_dropped("error")
            self._log.debug("event not written", reason=key.reason, error=str(error))
            return
        self._expect(self._pending.put_back(key, waiting))
        await asyncio.sleep(BACKOFF.delay(waiting.tries))


def render(key: Key, waiting: WaitingEvent, component: str) -> Object:
    target = key.target
    involved = {
        "apiVersion": target.api_version,
        "kind": target.kind,
        "namespace": target.namespace,
        "name": target.name,
        "uid": target.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": _event_name(target.name), "namespace": _namespace(target)},
        "involvedObject": {field: value for field, value in involved.items() if value},
        "type": key.type,
        "reason": key.reason,
        "message": key.message,
        "source": {"component": component, "host": socket.gethostname()},
        "reportingComponent": component,
        "reportingInstance": socket.gethostname(),
        "firstTimestamp": timestamp(waiting.first_at),
        "lastTimestamp": timestamp(waiting.last_at),
        "count": waiting.count,
    }


def _target(about: Ref | Mapping[str, Any]) -> EventTarget:
    if isinstance(about, Ref):
        return EventTarget("", about.kind, about.namespace, about.name, "")
    meta = about.get("metadata") or {}
    place = (meta.get("namespace", ""), meta.get("name", ""), meta.get("uid", ""))
    return EventTarget(about.get("apiVersion", ""), about.get("kind", ""), *place)


def _namespace(target: EventTarget) -> str:
    """Events about objects of cluster scope live in `default`, where `kubectl describe` looks."""
    return target.namespace or "default"


def _event_name(name: str) -> str:
    start = name[:200].rstrip("-.")
    return f"{start if USABLE_NAME.fullmatch(start) else 'berth'}.{secrets.token_hex(8)}"


def _clipped(message: str) -> str:
    return message if len(message) <= MESSAGE_LENGTH else f"{message[: MESSAGE_LENGTH - 1]}…"


def _remember(memory: OrderedDict[Any, Any], key: Any, value: Any, limit: int) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > limit:
        memory.popitem(last=False)
