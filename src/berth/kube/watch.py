"""List, then watch, forever: keeps a sink (a cache) equal to what the API server stores.

    list in pages ──► sink.replace ──► watch from that version ──► sink.apply …
         ▲                                   │ cut, or ended in time: again from the last version seen
         └───────────────────────────────────┘ 410, ERROR, silence, no progress twice, version going back,
                                               server away, or ten minutes over: list again

Work downstream is level-triggered, so a missed event may cost time, never correctness; the periodic list
bounds that time. A store restored from a backup continues at a lower version: a watch from the old, higher
one would wait in silence, so the version is asked for before every watch that does not follow a list. Where
that question finds no server, the next step is a list: by the time it answers, others may have written a
restored store past the version we know, and then no number tells that its history is another one.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from berth import log
from berth.backoff import Backoff
from berth.errors import Gone, KubeError, NotFound, ServerError, Unreachable
from berth.kube.client import SILENCE_SECONDS, Client, Event, Listing
from berth.kube.meta import Object
from berth.kube.resource import Resource

# A stream that goes on although its timeout is over is left this long after the next list was due.
OVERDUE_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
# A server that has just started knows its custom kinds a moment later; said five times, it is believed.
NOT_FOUND_TIMES = 5


class Sink(Protocol):
    """Where the objects go. Both are plain calls: nothing else runs between an event and its effect."""

    def replace(self, items: list[Object], resource_version: str) -> None:
        """A full list: everything not in it is gone. The first list means the sink is filled."""

    def reset(self, items: list[Object], resource_version: str) -> None:
        """A full list from a store whose versions went back (a restored backup): what was newer never was."""

    def apply(self, type: str, obj: Object) -> None:
        """One change: ADDED, MODIFIED or DELETED."""


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """Monotonic time of this process."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class WatchSettings:
    relist_seconds: float = 600.0
    stream_seconds: float = 300.0
    silence_seconds: float = SILENCE_SECONDS
    backoff_seconds: float = 0.1
    longest_backoff_seconds: float = 5.0
    keep_managed_fields: bool = False  # a third of an object, and nobody here reads it


async def reflect(
    client: Client,
    resource: Resource,
    sink: Sink,
    *,
    namespace: str = "",
    label_selector: str = "",
    field_selector: str = "",
    written: Callable[[], int] = lambda: 0,
    clock: Clock | None = None,
    settings: WatchSettings | None = None,
) -> None:
    """Runs until cancelled. No error of the API server ends it, it waits a little longer each time and goes
    on; but where the kind is not served (any more) it raises NotFound in the end. `written` is the highest
    version that the sink has from elsewhere, the answers to own writes.
    """
    scope = Scope(client, resource, namespace, label_selector, field_selector, written)
    await Reflector(scope, sink, clock or SystemClock(), settings or WatchSettings()).run()


@dataclass(frozen=True, slots=True)
class Scope:
    """What is reflected, and through whom."""

    client: Client
    resource: Resource
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    written: Callable[[], int] = lambda: 0


class Reflector:
    """One reflection's memory: the last version seen, when the next list is due, how long to back off."""

    def __init__(
        self,
        scope: Scope,
        sink: Sink,
        clock: Clock,
        settings: WatchSettings,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._scope = scope
        self._sink = sink
        self._clock = clock
        self._settings = settings
        self._jitter = jitter
        self._version = ""  # to watch from; empty: a list is due
        self._seen = 0  # the last version of the store that was shown to us
        self._went_back = False  # the store's history is not the one we saw
        self._relist_at = 0.0
        self._failures = 0
        self._not_found = 0
        self._idle_streams = 0
        self._trouble = ""
        self._log = log.get("berth.kube.watch")

    async def run(self) -> None:
        while True:
            try:
                await self._step()
            except Gone as error:
                self._relist(str(error))
                await self._back_off("Gone")
            except NotFound as error:
                self._not_found += 1
                if self._not_found == NOT_FOUND_TIMES:
                    raise
                self._relist(str(error))
                await self._back_off(f"{error.reason}: {error}")
            except KubeError as error:
                asked = getattr(error, "retry_after_seconds", None)
                await self._back_off(
                    f"{error.reason}: {error}", min(asked or 0.0, LONGEST_RETRY_AFTER_SECONDS)
                )

    async def _step(self) -> None:
        if not self._version or self._clock.now() >= self._relist_at:
            await self._list()
        else:
            await self._check_revision()
        if self._version:
            await self._watch()

    async def _list(self) -> None:
        scope = self._scope
        known = self._known()
        listing = await scope.client.list(
            scope.resource,
            scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
        )
        for item in listing.items:
            self._trim(item)
        self._hand_over(listing, known)
        self._relist_at = self._clock.now() + self._settings.relist_seconds * self._jitter(0.9, 1.1)
        self._idle_streams = 0

    def _hand_over(self, listing: Listing, known: int) -> None:
        went_back = self._went_back or _is_lower(listing.resource_version, known)
        (self._sink.reset if went_back else self._sink.replace)(listing.items, listing.resource_version)
        self._step_to(listing.resource_version)
        self._went_back = False
        self._not_found = 0

    async def _check_revision(self) -> None:
        known = self._known()
        try:
            present = await self._scope.client.revision(self._scope.resource, self._scope.namespace)
        except (Unreachable, ServerError):
            self._relist("the server was away")
            raise
        if _is_lower(present, known):
            self._rewind()

    def _known(self) -> int:
        """No lower version answers a question asked from now on, unless the store went back."""
        return max(self._seen, self._scope.written())

    def _step_to(self, version: str) -> None:
        self._version, self._seen = version, _number(version)

    async def _watch(self) -> None:
        """One stream from the last version; it ends by itself, at the latest when the next list is due."""
        heard_at = started_at = self._clock.now()
        progress = False
        try:
            async with aclosing(self._stream()) as events:
                async for event in events:
                    progress, heard_at = True, self._clock.now()
                    if not self._take(event) or heard_at > self._relist_at + OVERDUE_SECONDS:
                        return
        except Unreachable:
            if self._clock.now() - heard_at >= self._settings.silence_seconds:
                self._relist("the stream was silent")
            self._count(progress)
            raise
        self._count(progress)
        if not progress and self._clock.now() - started_at < 1.0:
            await self._back_off("the stream ended at once")

    def _stream(self) -> AsyncGenerator[Event]:
        scope, settings = self._scope, self._settings
        left = self._relist_at - self._clock.now()
        return scope.client.watch(
            scope.resource,
            scope.namespace,
            resource_version=self._version,
            timeout_seconds=min(left, settings.stream_seconds * self._jitter(0.9, 1.1)),
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            silence_seconds=settings.silence_seconds,
        )

    def _take(self, event: Event) -> bool:
        """False if the event shows that we must list again."""
        version = event.object["metadata"]["resourceVersion"]
        if _is_lower(version, self._seen):
            self._rewind()
            return False
        if event.type != "BOOKMARK":
            self._trim(event.object)
            self._sink.apply(event.type, event.object)
        self._step_to(version)
        self._recovered()
        return True

    def _count(self, progress: bool) -> None:
        self._idle_streams = 0 if progress else self._idle_streams + 1
        if self._idle_streams >= 2:
            self._relist("two streams ended without progress")

    def _rewind(self) -> None:
        self._went_back = True
        self._relist("the store's version went back")

    def _relist(self, why: str) -> None:
        self._log.info("listing again", resource=self._scope.resource.key, why=why)
        self._version = ""

    async def _back_off(self, trouble: str, at_least_seconds: float = 0.0) -> None:
        if trouble != self._trouble:
            self._log.warning("watch interrupted", resource=self._scope.resource.key, error=trouble)
            self._trouble = trouble
        backoff = Backoff(self._settings.backoff_seconds, self._settings.longest_backoff_seconds)
        seconds = backoff.delay(self._failures)
        self._failures += 1
        await self._clock.sleep(at_least_seconds + seconds * self._jitter(0.5, 1.0))

    def _recovered(self) -> None:
        if self._trouble:
            self._log.info("watch recovered", resource=self._scope.resource.key)
        self._trouble = ""
        self._failures = 0

    def _trim(self, obj: Object) -> None:
        if not self._settings.keep_managed_fields:
            obj["metadata"].pop("managedFields", None)


def _is_lower(version: str, than: int) -> bool:
    return 0 < _number(version) < than


def _number(version: str) -> int:
    """Versions of one store are growing integers; what is no integer (an aggregated server's) says
    nothing.
    """
    return int(version) if version.isdigit() else 0
