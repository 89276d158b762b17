"""A brake on mass release. Of Services that went while we watched, each is released at once. Where many
records have no Service and this process never saw one, the cluster may be the wrong one, or half restored:
then nothing of it is released until a person agrees, with the word that the log and the Event name.

    kubectl annotate namespace ipam-system ipam.vitistack.io/release-absent=WORD
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from berth import log
from berth.control.cache import Cache
from berth.control.events import Recorder
from berth.dialects import orphans
from berth.dialects.vitistack import kinds, record_store
from berth.dialects.vitistack.context import Parts
from berth.dialects.vitistack.record_store import Filed
from berth.dialects.vitistack.records import Record
from berth.kube import meta
from berth.metrics import Metrics

Object = dict[str, Any]
FRESH_SECONDS = 1.0

_log = log.get("ipam-operator")


class ReleaseBrake:
    def __init__(self, parts: Parts, filed: Filed, events: Recorder, metrics: Metrics) -> None:
        self._parts = parts
        self._filed = filed
        self._events = events
        self._metrics = metrics
        # Records whose admission we were there for, or of which a person said that they may go.
        self._met: set[tuple[str, str]] = set()
        self._has_met: Callable[[Record], bool] = lambda record: False
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._word = ""  # of what is held back now
        self._told = ""

    def watch(self, cache: Cache, has_met: Callable[[Record], bool]) -> None:
        self._has_met = has_met
        cache.listen(self._changed)

    async def holds(self, record: Record) -> bool:
        if self._is_known(record):
            return False
        async with self._looking:  # whoever comes while it is being found out waits for that
            if time.monotonic() - self._looked_at > FRESH_SECONDS:
                await self._look()
                self._looked_at = time.monotonic()
        return bool(self._word)

    async def _look(self) -> None:
        living = [record for record in self._filed if not record.released]
        absent = [record for record in living if self._is_absent(record)]
        held = orphans.Brake().holds(len(absent), len(living))
        word = orphans.word_for(record.name for record in absent) if held else ""
        if word and await self._is_agreed(word):
            self._met.update((record.name, record.uid) for record in absent)
            word = ""
        self._word = word
        self._metrics.braked(len(absent) if word else 0)
        if word not in ("", self._told):
            self._told = word
            self._tell(len(absent), len(living))

    def _is_absent(self, record: Record) -> bool:
        if record.until > time.time() or self._is_known(record):
            return False
        return not any(
            one["metadata"]["uid"] == record.uid for one in self._parts.neighbours.listing(record.address)
        )

    def _is_known(self, record: Record) -> bool:
        return (record.name, record.uid) in self._met or self._has_met(record)

    async def _is_agreed(self, word: str) -> bool:
        namespace = await self._parts.client.get(kinds.NAMESPACE, self._parts.settings.namespace)
        return meta.annotations(namespace).get(kinds.RELEASE_ABSENT) == word

    def _tell(self, absent: int, living: int) -> None:
        name = self._parts.settings.namespace
        text = (
            f"{absent} of {living} records have no Service and are not released. If those Services are "
            f"really gone: kubectl annotate --overwrite namespace {name} {kinds.RELEASE_ABSENT}={self._word}"
        )
        _log.error("too many Services are absent at once", absent=absent, records=living, word=self._word)
        about = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self._events.event(about, "Warning", "ReleasesHeldBack", text)

    def _changed(self, old: Object | None, new: Object | None) -> None:
        for record in record_store.differences(old, new):
            if self._filed.seen(record.name) is None:
                self._met.discard((record.name, record.uid))
            elif record.until > time.time():
                self._met.add((record.name, record.uid))
