"""Gives back what nobody owns: IP objects whose Service or VirtualIP is gone for good.

That happens when someone takes our finalizer away by force; a new object of the same name is not the owner.
What a clone still serves stays until that migration has ended. A Service that came to be of a class which is
not served here, while nobody ran, keeps of ours only what it shows.
Caches only raise a suspicion; an address is given back after two sightings, a grace between them, and live
reads of both objects. A sweep that would take many at once, of one pool or of all, is no clean-up but a
mistake somewhere: it stops, says so, and waits for a person.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from berth import log
from berth.control.informers import Informer
from berth.dialects.vip import kinds
from berth.dialects.vip.leases import Ledger, is_of
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
from berth.errors import KubeError
from berth.kube import meta

Object = dict[str, Any]
_log = log.get("berth.vip.janitor")


@dataclass(frozen=True, slots=True)
class Rules:
    every_seconds: float = 30.0
    grace_seconds: float = 90.0
    most_share: float = 0.05  # of a pool's IP objects in one sweep, and of all of them,
    most_few: int = 10  # or this many, whichever is more
    classes: tuple[str, ...] = ("",)  # of Services that are served here


class Janitor:
    def __init__(
        self,
        ledger: Ledger,
        owners: dict[str, Informer],
        rules: Rules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._owners = owners
        self._promises = Promises(owners[kinds.VIRTUAL_IP.kind])
        self._rules = rules or Rules()
        self._clock = clock
        self._suspected_at: dict[str, float] = {}  # by the UID of the IP object

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._rules.every_seconds)
            try:
                await self.sweep()
            except KubeError as error:
                _log.info("the sweep is tried again later", error=str(error))

    async def sweep(self) -> int:
        """One look at everything; how many addresses were given back."""
        due = self._due()
        if self._is_too_much(due):
            return 0
        return sum([await self._give_back(record) for record in due])

    def _is_too_much(self, due: list[Object]) -> bool:
        found, present = _per_pool(due), _per_pool(self._ledger.kept.cache)
        for pool, count in found.items():
            most = max(self._rules.most_few, int(present[pool] * self._rules.most_share))
            if count > most:
                told = "too many IP objects without an owner: nothing is given back until a person has looked"
                _log.error(told, pool=pool, found=count, most=most)
                return True
        return False

    def _due(self) -> list[Object]:
        suspects = {
            meta.uid(record): record for record in self._ledger.kept.cache if self._is_suspect(record)
        }
        now = self._clock()
        self._suspected_at = {uid: self._suspected_at.get(uid, now) for uid in suspects}
        grace = self._rules.grace_seconds
        return [record for uid, record in suspects.items() if now - self._suspected_at[uid] >= grace > 0]

    def _is_suspect(self, record: Object) -> bool:
        had_by = owner_of(record)
        kept = self._owners.get(had_by.kind) if had_by is not None else None
        if had_by is None or kept is None or kept.resource is None or meta.is_deleting(record):
            return False  # nobody's, or of a kind this server does not serve now: not ours to judge
        if self._is_kept_by(kept.cache.get(had_by.namespace, had_by.name), record):
            return False
        return block_of(record) not in self._promises.blocks(had_by.ref)

    async def _give_back(self, suspect: Object) -> bool:
        block, had_by = block_of(suspect), owner_of(suspect)
        if block is None or had_by is None:
            return False
        live = await self._owners[had_by.kind].fetch(had_by.namespace, had_by.name)
        if self._is_kept_by(live, suspect) or await self._promises.is_promised(had_by.ref, block):
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
        if live is not None and is_of(record, owner(live)):
            await self._let_go(live)
        return True

    async def _let_go(self, service: Object) -> None:
        """With the last of what was ours."""
        if not self._ledger.of_holder(owner(service).key):
            await self._owners[kinds.SERVICE.kind].remove_finalizer(service, kinds.SERVICE_FINALIZER)

    def _is_kept_by(self, found: Object | None, record: Object) -> bool:
        """By its very owner; a later object of that name counts if it shows the address: it was restored."""
        if found is None:
            return False
        if block_of(record) in (*shown(found), address_of(found)):
            return True
        return is_of(record, owner(found)) and not self._is_anothers(found)

    def _is_anothers(self, found: Object) -> bool:
        """Of a class not served here. One that is being deleted has a life that ends with all of ours."""
        is_served = is_of_class(found, self._rules.classes)
        return is_load_balancer(found) and not is_served and not meta.is_deleting(found)


def _per_pool(records: Iterable[Object]) -> Counter[str]:
    """How many of each pool, and under no name how many there are at all."""
    counts: Counter[str] = Counter()
    for record in records:
        labels = meta.labels(record)
        counts[labels.get(kinds.GROUP_LABEL) or labels.get(kinds.MAPPING_LABEL) or ""] += 1
    counts[""] = counts.total()
    return counts


def owners(services: Informer, vips: Informer) -> dict[str, Informer]:
    return {kinds.SERVICE.kind: services, kinds.VIRTUAL_IP.kind: vips}
