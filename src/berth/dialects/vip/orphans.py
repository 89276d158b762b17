"""IP objects whose Service or VirtualIP is gone for good: what berth.dialects.orphans collects here.

That happens when someone takes our finalizer away by force; a new object of the same name is not the owner.
What a clone still serves stays until that migration has ended. A Service that came to be of a class which is
not served here, while nobody ran, keeps of ours only what it shows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from berth import log
from berth.control.events import Recorder
from berth.control.informers import Informer
from berth.dialects.orphans import Pace, Suspect, consent
from berth.dialects.vip import kinds
from berth.dialects.vip.leases import IPLedger, is_of
from berth.dialects.vip.migration_locks import Promises
from berth.dialects.vip.translate import (
    block_of,
    is_load_balancer,
    is_of_class,
    owner,
    owner_of,
    shown,
)
from berth.dialects.vip.virtualip import address_of
from berth.kube import meta

Object = dict[str, Any]
_log = log.get("berth.vip.janitor")


PACE = Pace(every_seconds=30.0, grace_seconds=90.0)


class OrphanedIPs:
    """IP objects without an owner; see berth.dialects.orphans."""

    def __init__(
        self,
        ledger: IPLedger,
        owners: dict[str, Informer],
        pools: Mapping[str, Informer],
        events: Recorder,
        classes: tuple[str, ...] = ("",),
    ) -> None:
        self._ledger = ledger
        self._owners = owners
        self._pools = pools  # by the label that names one
        self._events = events
        self._promises = Promises(owners[kinds.VIRTUAL_IP.kind])
        self._classes = classes  # of Services that are served here

    async def suspects(self) -> AsyncIterator[Suspect]:
        for record in self._ledger.kept.cache:
            if self._is_suspect(record):
                yield Suspect(record, _pool_of(record))

    def count(self, pool: str) -> int:
        return self._ledger.count(*pool.split("/", 1)) if pool else self.count_all()

    def count_all(self) -> int:
        return len(self._ledger.kept.cache)

    def pool(self, name: str) -> Object | None:
        label, _, pool = name.partition("/")
        return self._pools[label].cache.get("", pool) if pool else None

    def held_back(self, pool: str, suspects: list[Suspect], word: str) -> None:
        label, _, name = pool.partition("/")
        told = "too many IP objects without an owner: nothing is given back until a person has looked"
        _log.error(told, pool=name, found=len(suspects), word=word)
        if (obj := self.pool(pool)) is not None:
            agree = consent(f"{self._pools[label].watched.versions[0].plural} {name}", word)
            text = (
                f"{len(suspects)} IP objects seem to have lost their owners, too many to give back unasked; "
            )
            self._events.event(obj, "Warning", "TooManyOrphans", text + agree)

    def _is_suspect(self, record: Object) -> bool:
        had_by = owner_of(record)
        kept = self._owners.get(had_by.kind) if had_by is not None else None
        if had_by is None or kept is None or kept.resource is None or meta.is_deleting(record):
            return False  # nobody's, or of a kind this server does not serve now: not ours to judge
        if self._is_kept_by(kept.cache.get(had_by.namespace, had_by.name), record):
            return False
        return block_of(record) not in self._promises.blocks(had_by.ref)

    async def is_alive(self, suspect: Suspect) -> bool:
        block, had_by = block_of(suspect.record), owner_of(suspect.record)
        if block is None or had_by is None:
            return True
        live = await self._owners[had_by.kind].fetch(had_by.namespace, had_by.name)
        return self._is_kept_by(live, suspect.record) or await self._promises.is_promised(had_by.ref, block)

    async def collect(self, suspect: Suspect) -> bool:
        block, had_by = block_of(suspect.record), owner_of(suspect.record)
        if block is None or had_by is None:
            return False
        record = await self._ledger.find(block)
        if record is None or owner_of(record) != had_by:
            return False
        await self._ledger.discard(record)
        _log.warning(
            "address given back: its owner is gone, or another's by now",
            address=block.address,
            owner=had_by.key,
        )
        services = self._owners[kinds.SERVICE.kind]
        live = self._owners[had_by.kind].cache.get(had_by.namespace, had_by.name)  # as it was just read
        is_last = live is not None and not self._ledger.of_holder(owner(live).key)
        if live is not None and is_last and is_of(record, owner(live)):
            await services.remove_finalizer(live, kinds.SERVICE_FINALIZER)  # with the last of what was ours
        return True

    def _is_kept_by(self, found: Object | None, record: Object) -> bool:
        """By its very owner; a later object of that name counts if it shows the address: it was restored."""
        if found is None:
            return False
        if block_of(record) in (*shown(found), address_of(found)):
            return True
        return is_of(record, owner(found)) and not self._is_anothers(found)

    def _is_anothers(self, found: Object) -> bool:
        """Of a class not served here. One that is being deleted has a life that ends with all of ours."""
        is_served = is_of_class(found, self._classes)
        return is_load_balancer(found) and not is_served and not meta.is_deleting(found)


def _pool_of(record: Object) -> str:
    """Label and name of its pool; empty where it has none."""
    labels = meta.labels(record)
    for label in (kinds.GROUP_LABEL, kinds.MAPPING_LABEL):
        if labels.get(label):
            return f"{label}/{labels[label]}"
    return ""


def owners(services: Informer, vips: Informer) -> dict[str, Informer]:
    return {kinds.SERVICE.kind: services, kinds.VIRTUAL_IP.kind: vips}
