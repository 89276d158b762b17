"""The controller's second half: a record whose Service no longer lists the address, or is gone.

Released is only what a live read confirms: never on the word of a cache, never because somebody asked for
deletion. The pool entry goes first, unless another Service needs it, and the record last, at once after the
release: the IPAM-API may give the address to somebody else from then on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from berth import log
from berth.control.events import Recorder
from berth.control.informers import Informer
from berth.dialects.vitistack.brake import ReleaseBrake
from berth.dialects.vitistack.confirm import Holding
from berth.dialects.vitistack.context import Parts
from berth.dialects.vitistack.heartbeat import Inventories
from berth.dialects.vitistack.records import DAY_SECONDS, Record
from berth.dialects.vitistack.service_annotations import Terms, host
from berth.errors import KubeError
from berth.kube import meta
from berth.secret import Secret

Object = dict[str, Any]
NO_SECRET_SECONDS = 60.0
UNHEARD_SECONDS, BRAKED_SECONDS, STRANGE_SECONDS = 0.5, 5.0, 3600.0

_log = log.get("ipam-operator")


@dataclass(frozen=True, slots=True)
class Restraint:
    """What keeps releases back although their Services are gone."""

    inventories: Inventories
    brake: ReleaseBrake


class Releasing:
    def __init__(
        self, parts: Parts, holding: Holding, services: Informer, events: Recorder, restraint: Restraint
    ) -> None:
        self._parts = parts
        self._restraint = restraint
        self._holding = holding
        self._services = services
        self._events = events
        self._going: set[str] = set()  # records whose Service is gone for certain, being released now

    async def remove_finalizer(self, record: Record) -> float:
        """Seconds until it is worth another look; 0: done with it."""
        now = time.time()
        if record.released:
            return await self._closed(record)
        existed = self._holding.has_met(record) or record.lived or not record.until
        if not existed and record.until > now:
            return record.until - now
        if wait := await self._restrained(record):
            return wait
        if await self._is_listed(record):
            return 0.1
        self._going.add(record.name)
        self._holding.doubt(record)
        try:
            return await (self._release_used(record) if existed else self._release_unused(record))
        finally:
            self._going.discard(record.name)

    async def _restrained(self, record: Record) -> float:
        """Seconds until it is worth another look; 0: it may go, as far as others are concerned."""
        if record.who.cluster_id != await self._parts.places.cluster_id():
            _log.warning("record of another cluster, left alone", name=record.who.service_name)
            return STRANGE_SECONDS
        inventories = self._restraint.inventories
        if not inventories.heard:
            if inventories.failure is not None:
                raise inventories.failure
            return UNHEARD_SECONDS
        return BRAKED_SECONDS if await self._restraint.brake.holds(record) else 0.0

    async def _is_listed(self, record: Record) -> bool:
        """By the Service as it is stored now."""
        live = await self._services.fetch(record.namespace, record.who.service_name)
        if live is None:
            return False
        return record.uid in ("", meta.uid(live)) and record.address in self._parts.neighbours.addresses_of(
            live
        )

    async def _release_used(self, record: Record) -> float:
        secrets = await self._parts.secrets_of(record)
        if not secrets:
            return self._without_secret(record)
        days = record.terms.retention_days
        await self._release(record, record.terms, secrets)
        await self._close(record, time.time() + days * DAY_SECONDS if days else 0.0)
        kept = f", kept for {days} days" if days else ""
        self._tell(record, "Normal", "AddressReleased", f"{host(record.address)} in zone {record.zone}{kept}")
        return days * DAY_SECONDS

    async def _release_unused(self, record: Record) -> float:
        """Its Service never came to exist. If it had recalled what an earlier one left, that stays retained
        as if never asked for. Without the copy of a user's secret nothing was confirmed yet.
        """
        secrets = await self._parts.secrets_of(record)
        if not secrets and not record.kept:
            return self._without_secret(record)
        now = time.time()
        terms = record.owed(now)
        await self._release(record, terms, secrets)
        await self._close(record, record.retained_until if terms.retention_days else 0.0)
        return max(0.0, record.retained_until - now)

    async def _release(self, record: Record, terms: Terms, secrets: tuple[Secret, ...]) -> None:
        """A pool that cannot be written does not keep the address back, only our record."""
        failure = None
        try:
            if not self._is_needed(record):
                await self._parts.pools.remove(record.zone, record.address, lambda: self._is_needed(record))
        except KubeError as error:
            failure = error
        if secrets:
            await self._parts.registrar.release(replace(record, terms=terms), secrets)
        if failure is not None:
            raise failure

    def _without_secret(self, record: Record) -> float:
        self._tell(record, "Warning", "ReleasePending", "the secret it was registered with is gone")
        return NO_SECRET_SECONDS

    async def _close(self, record: Record, retained_until: float) -> None:
        if retained_until or record.kept:
            left = replace(record, released=True, lived=False, until=0.0)
            await self._parts.records.save(replace(left, retained_until=retained_until))
        else:
            await self._parts.records.drop(record)
        self._holding.forget(record)

    async def _closed(self, record: Record) -> float:
        """Released. The copy of its secret goes before the record, without which nobody would find it."""
        if record.kept:
            await self._parts.vault.forget(record)
        wait = record.retained_until - time.time()
        if wait <= 0:
            await self._parts.records.drop(record)
            return 0.0
        if record.kept:
            await self._parts.records.save(replace(record, kept=False))
        return wait

    def _is_needed(self, record: Record) -> bool:
        """By a live Service, or by one whose admission is under way. Two that go together need it no more:
        else each would leave the entry to the other.
        """
        if self._parts.neighbours.listing(record.address):
            return True
        others = self._parts.records.of_address(record.address)
        return any(not other.released and other.name not in self._going for other in others)

    def _tell(self, record: Record, type_: Any, reason: str, text: str) -> None:
        about = {"name": record.who.service_name, "namespace": record.namespace, "uid": record.uid}
        self._events.event({"apiVersion": "v1", "kind": "Service", "metadata": about}, type_, reason, text)
