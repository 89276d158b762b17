"""One pass over one Service: hold what it lists, let go what it does not, serve it if nobody has yet."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from berth import log
from berth.control.events import Recorder
from berth.control.informers import Informer
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.vitistack import defaults, kinds, service_annotations
from berth.dialects.vitistack.confirm import Holding
from berth.dialects.vitistack.context import Parts
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.mutate import Mutation, Visit
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.release import Releasing, Restraint
from berth.dialects.vitistack.service_annotations import Families
from berth.errors import ApiError, NotFound
from berth.kube import meta, patch
from berth.kube.meta import Ref

Object = dict[str, Any]
REFUSED_SECONDS = 60.0

_log = log.get("ipam-operator")


class ServiceLife:
    def __init__(self, parts: Parts, services: Informer, events: Recorder, restraint: Restraint) -> None:
        self._parts = parts
        self._kept = services
        self._services = services.cache
        self._events = events
        self._mutation = Mutation(parts)
        self.holding = Holding(parts, events)
        self._releasing = Releasing(parts, self.holding, services, events, restraint)

    async def reconcile(self, ref: Ref) -> Outcome:
        try:
            wait = await self._pass(ref)
        except ApiError as error:
            reason = "AddressRefused" if self._services.get(ref.namespace, ref.name) else "ReleasePending"
            self._warn(ref, reason, self._parts.registrar.said(error))
            raise
        except No as no:
            self._warn(ref, "AddressRefused", no.message)
            return After(REFUSED_SECONDS)
        return After(wait) if wait > 0 else DONE

    async def _pass(self, ref: Ref) -> float:
        live = self._services.get(ref.namespace, ref.name)
        if live is not None and self._is_unserved(live):
            await self._serve(live)
            live = self._services.get(ref.namespace, ref.name)
        elif live is not None and self._is_misleading(live):
            await self._straighten(live)
        listed = self._parts.neighbours.addresses_of(live)
        waits = [await self.holding.hold(live, address) for address in listed] if live is not None else []
        records = self._parts.records.of_service(ref.namespace, ref.name)
        left = [one for one in records if live is None or not _is_held_by(one, live, listed)]
        waits += [await self._releasing.remove_finalizer(record) for record in left]
        return min((wait for wait in waits if wait > 0), default=0.0)

    def _is_unserved(self, live: Object) -> bool:
        """Admitted while the webhooks or the IPAM-API were away, or from before us."""
        if not self._parts.neighbours.is_served(live) or meta.is_deleting(live):
            return False
        annotations = meta.annotations(live)
        if not defaults.has_ours(live):
            return True
        there = {address.family for address in service_annotations.listed(annotations)}
        word = annotations.get(kinds.FAMILY, "")
        wanted = Families(word).wanted if word in set(Families) else ()
        return any(family not in there for family in wanted) or kinds.FAMILY not in annotations

    def _is_misleading(self, live: Object) -> bool:
        """Edited while no webhook was there. Without records it was never ours, or is not yet."""
        if (
            not self._parts.neighbours.is_served(live)
            or meta.is_deleting(live)
            or not defaults.misleads(live)
        ):
            return False
        return all(
            self._parts.neighbours.backing(live, one) for one in self._parts.neighbours.addresses_of(live)
        )

    async def _straighten(self, live: Object) -> None:
        said = meta.annotations(live)
        right = defaults.for_metallb(
            said[kinds.ZONE], service_annotations.listed(said), said[kinds.SHARING_KEY]
        )
        await self._patch(live, {"metadata": {"annotations": right}})

    async def _serve(self, live: Object) -> None:
        served, warnings = await self._mutation.completed(Visit(live, live))
        changes = patch.diff(live, served)
        if changes is None:
            for text in warnings:
                _log.warning("Service not served", name=live["metadata"]["name"], cause=text)
            return
        await self._patch(live, changes)

    async def _patch(self, live: Object, changes: Object) -> None:
        changes.setdefault("metadata", {})["uid"] = meta.uid(live)
        with suppress(NotFound):
            await self._kept.patch(live, changes)

    def _warn(self, ref: Ref, reason: str, text: str) -> None:
        live = self._services.get(ref.namespace, ref.name)
        _log.warning("Service is looked at again", name=ref.name, namespace=ref.namespace, cause=text)
        self._events.event(live if live is not None else ref, "Warning", reason, text)


def _is_held_by(record: Record, live: Object, listed: tuple[object, ...]) -> bool:
    return record.address in listed and record.uid == meta.uid(live) and not record.released
