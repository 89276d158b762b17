"""Leases as IPAddress objects named after the address: the API server itself refuses a double.

Inside one API the name is the lock. Between the two APIs that share a pool it is not, so a new address is
shown to nobody before one look at the other API, made after our object was stored, found no twin. Whoever
looks second sees the first: two claims can both step back, but never both stay (docs/decisions/0006).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from berth.control.mirror import Kept
from berth.dialects.metal3.flavour import Flavour, Written, holder
from berth.dialects.metal3.translate import PoolSpec
from berth.errors import AlreadyExists, Conflict, Invalid, NotFound, Taken
from berth.kube import meta, patch
from berth.kube.client import Client, PatchKind
from berth.kube.resource import Resource
from berth.net import Block, parse_block

Object = dict[str, Any]


class Leases:
    """The address objects of one flavour."""

    def __init__(self, flavour: Flavour, kept: Kept, client: Client, twins: Twins) -> None:
        self.flavour = flavour
        self.kept = kept
        self._client = client
        self._twins = twins

    @property
    def resource(self) -> Resource:
        return self.kept.resource or self.kept.watched.versions[0]

    def of_holder(self, key: str) -> list[Object]:
        return self.kept.cache.by("holder", key)

    def holder_of(self, address: Object) -> str:
        namespace = address["metadata"]["namespace"]
        return holder(self.flavour, namespace, self.flavour.claim_of_address(address))

    async def commit(self, claim: Object, pool: Object, spec: PoolSpec, block: Block) -> Object:
        """The object that records the lease: the one that exists, or a new one. Raises Taken."""
        key = holder(self.flavour, claim["metadata"]["namespace"], claim["metadata"]["name"])
        record = next((found for found in self.of_holder(key) if block_of(found) == block), None)
        if record is not None and self.flavour.is_bound(claim):
            return record
        if record is not None and meta.is_deleting(record):
            await self.discard(record)  # deleted by hand before its claim ever saw it
            raise Conflict(409, f"{record['metadata']['name']} is being deleted; looking again")
        if record is None:
            record = await self._create(claim, pool, spec, block)
        await self._refuse_twin(record, block)
        return record

    async def discard(self, record: Object) -> None:
        """Take the object away: our finalizer first, then the object, unless it is gone or another by now."""
        name, namespace = record["metadata"]["name"], record["metadata"]["namespace"]
        steps = patch.remove_finalizer(record, self.flavour.address_finalizer)
        try:
            if steps is not None:
                record = await self._client.patch(self.resource, name, steps, namespace, kind=PatchKind.JSON)
            if meta.is_deleting(record) and not meta.finalizers(record):
                self.kept.cache.bury(record)
                return
            left = await self._client.delete(self.resource, name, namespace, uid=meta.uid(record))
        except NotFound:
            left = None
        except Invalid as error:
            raise Conflict(409, error.message) from error
        if left is not None and left.get("kind") == "IPAddress":
            self.kept.cache.observe(left)  # a foreign finalizer holds it; it counts until it is gone
        else:
            self.kept.cache.bury(record)

    async def find(self, namespace: str, name: str) -> Object | None:
        """A live read, for when it is unknown whether a create took effect."""
        try:
            return await self._client.get(self.resource, name, namespace)
        except NotFound:
            return None

    async def _create(self, claim: Object, pool: Object, spec: PoolSpec, block: Block) -> Object:
        written = Written(spec.address_name(block), block.address, spec.netconfig_of(block))
        body = self.flavour.address_object(claim, pool, written)
        namespace = claim["metadata"]["namespace"]
        try:
            record = await self._client.create(self.resource, body, namespace)
        except AlreadyExists:
            return await self._is_it_ours(claim, pool, written, block)
        self.kept.cache.observe(record)
        return record

    async def _is_it_ours(self, claim: Object, pool: Object, written: Written, block: Block) -> Object:
        namespace = claim["metadata"]["namespace"]
        record = await self.find(namespace, written.name)
        if record is None:
            raise Conflict(409, f"IPAddress {namespace}/{written.name} came and went; looking again")
        ours = (
            self.flavour.claim_of_address(record) == claim["metadata"]["name"]
            and self.flavour.pool_of_address(record) == f"{namespace}/{pool['metadata']['name']}"
        )
        if ours and not meta.is_deleting(record):
            self.kept.cache.observe(record)
            return record
        raise Taken(block, stranger(self.resource, namespace, written.name))

    async def _refuse_twin(self, record: Object, block: Block) -> None:
        name, namespace = record["metadata"]["name"], record["metadata"]["namespace"]
        twin = await self._twins.find(self.flavour.kind, namespace, name)
        if twin is not None:
            await self.discard(record)
            raise Taken(block, twin)


class Twins:
    """Looks at the other API for an address object of the same name, with one live request for many claims.

    Most namespaces use one API only: a list of at most one object says so for all who asked before it went.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._other: dict[str, Leases] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sent: dict[str, int] = defaultdict(int)
        self._answer: dict[str, tuple[int, bool]] = {}

    def pair(self, one: Leases, two: Leases) -> None:
        self._other = {one.flavour.kind: two, two.flavour.kind: one}

    async def find(self, kind: str, namespace: str, name: str) -> str | None:
        """The holder of the twin, or None. Only reads that were sent after this call began count."""
        other = self._other.get(kind)
        if other is None or other.kept.resource is None:
            return None
        if not other.kept.cache.count_by("namespace", namespace) and await self._none(other, namespace):
            return None
        twin = await other.find(namespace, name)
        return None if twin is None else other.holder_of(twin)

    async def _none(self, other: Leases, namespace: str) -> bool:
        key = f"{other.flavour.kind}/{namespace}"
        asked_at = self._sent[key]
        async with self._locks[key]:
            sent, none = self._answer.get(key, (-1, False))
            if sent > asked_at:
                return none
            self._sent[key] += 1
            sent = self._sent[key]
            page = await self._client.raw("GET", other.resource.path(namespace), params={"limit": "1"})
            self._answer[key] = (sent, not page.get("items"))
            return self._answer[key][1]


def block_of(address: Object) -> Block:
    return parse_block(address["spec"]["address"])


def stranger(resource: Resource, namespace: str, name: str) -> str:
    """Holder key of an address object that stands in the way and belongs to no claim of this pool."""
    return f"{resource.key}/{namespace}/{name}"
