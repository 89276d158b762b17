"""Leases as IP objects named after the address: the API server itself refuses a double.

The name is the lock across overlapping groups, both eras and any number of operators. An object belongs to
who its owner annotation names, and to that one's UID where we wrote it; every release is conditional on the
very object we looked at, so that a late message about an earlier Service of the same name changes nothing.
"""

from __future__ import annotations

from typing import Any

from berth.control.informers import Informer
from berth.dialects.vip import kinds
from berth.dialects.vip.translate import Owner, block_of, holder_of, ip_name, ip_object, owner_of
from berth.errors import AlreadyExists, Conflict, Taken
from berth.kube import meta, patch
from berth.net import Block

Object = dict[str, Any]


class IPLedger:
    def __init__(self, kept: Informer) -> None:
        self.kept = kept

    def get(self, block: Block) -> Object | None:
        return self.kept.cache.get("", ip_name(block))

    def of_holder(self, key: str) -> list[Object]:
        return self.kept.cache.by("holder", key)

    def count(self, label: str, pool: str) -> int:
        return self.kept.cache.count_by(label, pool)

    def of_pool(self, label: str, pool: str) -> list[Object]:
        return self.kept.cache.by(label, pool)

    async def commit(self, owner: Owner, block: Block, label: str, pool: str) -> Object:
        """The object that records the lease: the one that is there, or a new one. Raises Taken."""
        record = self.get(block)
        if record is None:
            try:
                record = await self.kept.create(ip_object(block, label, pool, owner))
            except AlreadyExists:
                record = await self.find(block)
        if record is None:
            raise Conflict(409, f"IP {ip_name(block)} came and went; looking again")
        return await self._own(record, owner, block)

    async def _own(self, record: Object, owner: Owner, block: Block) -> Object:
        found = owner_of(record)
        if found is None or found.key != owner.key:
            raise Taken(block, holder_of(record))
        if found.uid in ("", owner.uid):
            return record
        # Left by an earlier object of the same name, which went without us: the name keeps the address.
        change = {"metadata": {"annotations": {kinds.OWNER_UID: owner.uid}}}
        return await self.kept.patch(record, patch.guarded(change, record, uid=True))

    async def hand_over(self, record: Object, label: str, pool: str, owner: Owner) -> Object:
        """Another pool and another owner; every other label and annotation goes."""
        wanted = ip_object(_block(record), label, pool, owner)["metadata"]
        change = {
            "labels": patch.diff(meta.labels(record), wanted["labels"]),
            "annotations": patch.diff(meta.annotations(record), wanted["annotations"]),
        }
        if not any(change.values()):
            return record
        body = {"metadata": {key: part for key, part in change.items() if part}}
        return await self.kept.patch(record, patch.guarded(body, record, uid=True))

    async def discard(self, record: Object) -> None:
        """Take away this very object; gone already is fine, and changed since means: look again. Where a
        foreign finalizer holds it, it counts until it is gone."""
        try:
            await self.kept.delete(record)
        except Conflict:
            await self.find(_block(record))
            raise

    async def find(self, block: Block) -> Object | None:
        """A live read."""
        return await self.kept.fetch("", ip_name(block))


def is_of(record: Object, owner: Owner) -> bool:
    """Does the record belong to this very object, not to an earlier or later one of the same name?"""
    found = owner_of(record)
    return found is not None and found.key == owner.key and found.uid in ("", owner.uid)


def indexes() -> dict[str, Any]:
    return {
        "holder": lambda ip: (holder_of(ip),),
        kinds.GROUP_LABEL: lambda ip: _label(ip, kinds.GROUP_LABEL),
        kinds.MAPPING_LABEL: lambda ip: _label(ip, kinds.MAPPING_LABEL),
    }


def _label(ip: Object, label: str) -> tuple[str, ...]:
    value = meta.labels(ip).get(label)
    return () if value is None else (value,)


def _block(record: Object) -> Block:
    block = block_of(record)
    assert block is not None, "records come from blocks"
    return block
