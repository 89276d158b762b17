"""The controller's second half: a record whose Service no longer lists the address, or is gone.

Released is only what a live read confirms: never on the word of a cache, never because somebody asked for
deletion. Then the pool entry goes, unless another Service needs it, and the record last.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from berth.control.cache import Cache
from berth.control.events import Recorder
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.holding import Holding
from berth.dialects.vitistack.parts import Parts
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.wish import Terms, host
from berth.errors import NotFound
from berth.kube import meta

Object = dict[str, Any]
DAY_SECONDS = 24 * 3600.0
NO_SECRET_SECONDS = 60.0


class Releasing:
    def __init__(self, parts: Parts, holding: Holding, services: Cache, events: Recorder) -> None:
        self._parts = parts
        self._holding = holding
        self._services = services
        self._events = events

    async def let_go(self, record: Record) -> float:
        """Seconds until it is worth another look; 0: done with it."""
        now = time.time()
        if record.released:
            if record.retained_until > now:
                return record.retained_until - now
            await self._parts.records.drop(record)
            return 0.0
        existed = self._holding.has_seen(record) or not record.until
        if not existed and record.until > now:
            return record.until - now
        if await self._is_listed(record):
            return 0.1
        if not existed and record.retained_until > now:
            # A refused request had recalled it: what is retained stays retained, as if never asked for.
            await self._parts.records.save(replace(record, released=True, until=0.0))
            return record.retained_until - now
        return await self._release(record, record.terms if existed else Terms(0, record.terms.deny))

    async def _is_listed(self, record: Record) -> bool:
        """By the Service as it is stored now."""
        try:
            live = await self._parts.client.get(kinds.SERVICE, record.who.service_name, record.namespace)
        except NotFound:
            return False
        self._services.observe(live)
        return record.uid in ("", meta.uid(live)) and record.address in self._parts.neighbours.addresses_of(
            live
        )

    async def _release(self, record: Record, terms: Terms) -> float:
        secrets = await self._parts.secrets_of(record)
        if not secrets:
            self._tell(record, "Warning", "ReleasePending", "the secret it was registered with is gone")
            return NO_SECRET_SECONDS
        await self._parts.registrar.release(replace(record, terms=terms), secrets)
        if not self._is_needed(record):
            await self._parts.pools.remove(record.zone, record.address)
        await self._close(record, terms)
        kept = f", kept for {terms.retention_days} days" if terms.retention_days else ""
        self._tell(record, "Normal", "AddressReleased", f"{host(record.address)} in zone {record.zone}{kept}")
        return terms.retention_days * DAY_SECONDS

    async def _close(self, record: Record, terms: Terms) -> None:
        if terms.retention_days:
            ends = time.time() + terms.retention_days * DAY_SECONDS
            await self._parts.records.save(
                replace(record, released=True, kept=False, retained_until=ends, until=0.0)
            )
        else:
            await self._parts.records.drop(record)
        if record.kept:
            await self._parts.vault.forget(record.name)
        self._holding.forget(record)

    def _is_needed(self, record: Record) -> bool:
        """By a live Service, or by one whose admission is under way."""
        if self._parts.neighbours.listing(record.address):
            return True
        others = self._parts.records.of_address(record.address)
        return any(other.name != record.name and not other.released for other in others)

    def _tell(self, record: Record, type_: Any, reason: str, text: str) -> None:
        about = {"name": record.who.service_name, "namespace": record.namespace, "uid": record.uid}
        self._events.event({"apiVersion": "v1", "kind": "Service", "metadata": about}, type_, reason, text)
