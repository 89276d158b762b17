"""Gives back what nobody owns: IP objects whose Service or VirtualIP is gone for good.

That happens when someone takes our finalizer away by force. Caches only raise a suspicion; an address is
given back after two sightings, a grace between them, and live reads of both objects. A sweep that would take
many at once is no clean-up but a mistake somewhere: it stops, says so, and waits for a person.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from berth import log
from berth.control.mirror import Kept
from berth.dialects.vip import kinds
from berth.dialects.vip.ledger import Ledger
from berth.dialects.vip.translate import Owner, block_of, owner_of
from berth.errors import KubeError, NotFound
from berth.kube import meta
from berth.kube.client import Client
from berth.net import Block

Object = dict[str, Any]
_log = log.get("berth.vip.janitor")


@dataclass(frozen=True, slots=True)
class Rules:
    every_seconds: float = 30.0
    grace_seconds: float = 90.0
    most_share: float = 0.05  # of all IP objects in one sweep,
    most_few: int = 10  # or this many, whichever is more


class Janitor:
    def __init__(
        self,
        ledger: Ledger,
        owners: dict[str, Kept],
        client: Client,
        rules: Rules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._owners = owners
        self._client = client
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
        brake = max(self._rules.most_few, int(len(self._ledger.kept.cache) * self._rules.most_share))
        if len(due) > brake:
            _log.error(
                "too many IP objects without an owner: nothing is given back until a person has looked",
                found=len(due),
                most=brake,
            )
            return 0
        return sum([await self._give_back(block, owner) for block, owner in due])

    def _due(self) -> list[tuple[Block, Owner]]:
        suspects = {
            meta.uid(record): record for record in self._ledger.kept.cache if self._is_suspect(record)
        }
        now = self._clock()
        self._suspected_at = {uid: self._suspected_at.get(uid, now) for uid in suspects}
        grace = self._rules.grace_seconds
        due = [record for uid, record in suspects.items() if now - self._suspected_at[uid] >= grace > 0]
        pairs = ((block_of(record), owner_of(record)) for record in due)
        return [(block, owner) for block, owner in pairs if block is not None and owner is not None]

    def _is_suspect(self, record: Object) -> bool:
        owner = owner_of(record)
        kept = self._owners.get(owner.kind) if owner is not None else None
        if owner is None or kept is None or kept.resource is None or meta.is_deleting(record):
            return False  # nobody's, or of a kind this server does not serve now: not ours to judge
        return kept.cache.get(owner.namespace, owner.name) is None

    async def _give_back(self, block: Block, owner: Owner) -> bool:
        resource = self._owners[owner.kind].watched.versions[0]
        try:
            await self._client.get(resource, owner.name, owner.namespace)
            return False
        except NotFound:
            record = await self._ledger.find(block)
        if record is None or owner_of(record) != owner:
            return False
        await self._ledger.discard(record)
        _log.warning("address given back: its owner is gone", address=block.address, owner=owner.key)
        return True


def owners(services: Kept, vips: Kept) -> dict[str, Kept]:
    return {kinds.SERVICE.kind: services, kinds.VIRTUAL_IP.kind: vips}
