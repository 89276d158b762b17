"""Leases as IPAddress objects named after the address: the API server itself refuses a double.

Inside one API the name is the lock. Between the two APIs that share a pool it is not, so a new address is
shown to nobody before one look at the other API, made after our object was stored. Of two twins the later one
goes: it is sure to see the earlier, which was there when it came. Where the order cannot be told both go.

The claim's status, written only over the version it was decided on, says which object is the claim's. That
holds with several operators at work on one claim, too (docs/decisions/0006).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from berth.control.informers import Informer
from berth.dialects.claim import NotStored
from berth.dialects.metal3.claim_api import Flavour, Written, holder, made_for
from berth.dialects.metal3.translate import PoolSpec
from berth.errors import AlreadyExists, Conflict, InvalidText, NotFound, Taken
from berth.kube import meta, patch
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.net import Block, parse_block

TAKER = "berth-take-over"  # a second writer in `managedFields`: see born_at
FEW = 4  # who looks for a twin while no more than this do so in the namespace asks by name

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """An address object that has the address we chose, and whose it is."""

    leases: IPAddressLedger
    namespace: str
    name: str
    holder: str
    born: int  # see born_at

    @property
    def key(self) -> str:
        return object_key(self.leases.resource, self.namespace, self.name)

    def is_object(self, record: Object) -> bool:
        same = (record["metadata"]["namespace"], record["metadata"]["name"]) == (self.namespace, self.name)
        return same and record["apiVersion"] == self.leases.resource.api_version


class InTheWay(Taken):
    """The name is taken, and by whom."""

    def __init__(self, block: Block, obstacle: Obstacle) -> None:
        super().__init__(block, obstacle.holder)
        self.obstacle = obstacle


class StepBack(Exception):
    """Our own object must go: it has a twin in the other API, or someone is deleting it."""

    def __init__(self, record: Object, obstacle: Obstacle) -> None:
        super().__init__(f"{record['metadata']['name']} is given back; {obstacle.holder} has the address")
        self.record = record
        self.obstacle = obstacle


class IPAddressLedger:
    """The address objects of one flavour."""

    def __init__(self, flavour: Flavour, kept: Informer, client: Client, twins: Twins) -> None:
        self.flavour = flavour
        self.kept = kept
        self._client = client
        self._twins = twins
        self._lists: Counter[str] = Counter()  # begun so far, by namespace
        self._listing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def resource(self) -> Resource:
        return self.kept.resource or self.kept.watched.versions[0]

    def of_claim(self, claim: Object) -> list[Object]:
        """The objects that name this claim and its pool."""
        named = self.kept.cache.by("holder", self.key_of(claim))
        return [record for record in named if self.is_for(record, claim)]

    def key_of(self, claim: Object) -> str:
        return holder(self.flavour, claim["metadata"]["namespace"], claim["metadata"]["name"])

    def key_of_object(self, address: Object) -> str:
        return object_key(self.resource, address["metadata"]["namespace"], address["metadata"]["name"])

    def holder_of(self, address: Object) -> str:
        namespace = address["metadata"]["namespace"]
        return holder(self.flavour, namespace, self.flavour.claim_of_address(address))

    def named_by(self, claim: Object) -> Object | None:
        """The object the claim's status names, if it is known and the claim's."""
        name = self.flavour.bound_name(claim)
        record = self.kept.cache.get(claim["metadata"]["namespace"], name) if name else None
        return record if record is not None and self.is_for(record, claim) else None

    def is_for(self, record: Object, claim: Object) -> bool:
        same_claim = self.flavour.claim_of_address(record) == claim["metadata"]["name"]
        return same_claim and self.flavour.pool_of_address(record) == self.flavour.pool_key(claim)

    async def catch_up(self, claim: Object) -> bool:
        """Watches of two kinds do not keep step: is there an object which the claim names and we miss?"""
        name = self.flavour.bound_name(claim)
        if not name or self.named_by(claim) is not None:
            return False
        record = await self.find(claim["metadata"]["namespace"], name)
        if record is None or not self.is_for(record, claim):
            return False
        self.kept.cache.put(record)
        if self.named_by(claim) is None:
            # Only a store restored from a backup has less than we saw. Until its list is here, what we know
            # of the address is another history's, and the claim must not be moved because of it.
            raise Conflict(409, f"IPAddress {name} is older than the one we knew; looking again")
        return True

    async def relearn(self, claim: Object) -> bool:
        """Ask the server for the namespace's objects, once for all who ask meanwhile. True: one is the
        claim's."""
        namespace = claim["metadata"]["namespace"]
        begun = self._lists[namespace]
        async with self._listing[namespace]:
            if self._lists[namespace] == begun:
                self._lists[namespace] += 1
                for record in (await self._client.list(self.resource, namespace)).items:
                    self.kept.cache.put(record)
        return bool(self.of_claim(claim))

    async def commit(self, claim: Object, pool: Object, spec: PoolSpec, block: Block) -> Object:
        """The object that records the lease: the one that exists, or a new one. Raises Taken or StepBack."""
        record = next((found for found in self.of_claim(claim) if block_of(found) == block), None)
        if record is not None and record["metadata"]["name"] == self.flavour.bound_name(claim):
            return record
        if record is None:
            record = await self._create(claim, pool, spec, block)
        else:
            record = await self._look_at(record)
        born, namespace, lock = born_at(record), record["metadata"]["namespace"], spec.address_name(block)
        self.kept.cache.put(record)
        twin = await self._twins.find(self.flavour.kind, namespace, lock)
        if record["metadata"]["name"] != lock:
            await self._yield_to(lock, namespace, claim, block, twin)
        elif twin is not None and not (0 < born < twin.born):
            raise StepBack(record, twin)
        return record

    async def _yield_to(
        self, lock: str, namespace: str, claim: Object, block: Block, twin: Obstacle | None
    ) -> None:
        """An object of another name has no lock on its address: whoever has the lock has the address."""
        other = await self.find(namespace, lock)
        if other is not None and not (self.is_for(other, claim) and block_of(other) == block):
            raise InTheWay(block, self.obstacle(other))
        if twin is not None:
            raise InTheWay(block, twin)

    async def _look_at(self, record: Object) -> Object:
        """We know the object, but its claim does not name it: another operator may be taking it away."""
        name, namespace = record["metadata"]["name"], record["metadata"]["namespace"]
        found = await self.find(namespace, name)
        if found is None or meta.uid(found) != meta.uid(record):
            self.kept.cache.forget_deleted(record)
            raise Conflict(409, f"IPAddress {namespace}/{name} is gone; looking again")
        if meta.is_deleting(found):
            raise StepBack(found, self.obstacle(found))
        return found

    async def mark(self, record: Object) -> Object | None:
        """Ask for deletion and keep our finalizer on it: from now on nobody may take it up. None: gone.
        Raises Conflict if it was taken up since we looked."""
        if meta.is_deleting(record):
            return record
        return await self.kept.delete(record)

    async def collect(self, record: Object) -> None:
        """Take away what no claim uses. The next claim of its name may be taking it up just now: that
        or the mark comes first, and the other is refused."""
        if (marked := await self.mark(record)) is not None:
            await self.discard(marked)

    def surplus(self, claim: Object, record: Object) -> list[Object]:
        """Other objects made for this very claim, which names `record`: leftovers of operators that raced."""
        return [
            other
            for other in self.of_claim(claim)
            if meta.uid(other) != meta.uid(record) and made_for(self.flavour, other) == meta.uid(claim)
        ]

    async def discard(self, record: Object) -> None:
        """Let go of an object that is marked, unless it is gone or another by now."""
        # Where a foreign finalizer holds it, it counts until it is gone.
        await self.kept.remove_finalizer(record, self.flavour.address_finalizer)

    async def take_over(self, record: Object, claim: Object) -> Object:
        """Made for an earlier claim of this name; now it says that it is this one's."""
        maker = made_for(self.flavour, record)
        owners = [
            {**one, "uid": meta.uid(claim)} if one["uid"] == maker else one for one in meta.owners(record)
        ]
        body = patch.guarded({"metadata": {"ownerReferences": owners}}, record)
        return await self.kept.patch(record, body, field_manager=TAKER)

    async def find(self, namespace: str, name: str) -> Object | None:
        """A live read, for when it is unknown whether a create took effect. The cache is not told: it would
        take `managedFields` off, see born_at."""
        try:
            return await self._client.get(self.resource, name, namespace)
        except NotFound as error:
            if not error.details.get("name"):
                raise  # the kind itself is not served, so who has what cannot be told
            return None

    async def _create(self, claim: Object, pool: Object, spec: PoolSpec, block: Block) -> Object:
        written = Written(spec.address_name(block), block.address, spec.netconfig_of(block))
        if fault := self.flavour.netconfig_fault(written.netconfig, block):
            raise NotStored(fault)
        body = self.flavour.address_object(claim, pool, written)
        namespace = claim["metadata"]["namespace"]
        try:
            return await self._client.create(self.resource, body, namespace)
        except AlreadyExists:
            return await self._is_it_ours(claim, written.name, block)

    async def _is_it_ours(self, claim: Object, name: str, block: Block) -> Object:
        namespace = claim["metadata"]["namespace"]
        record = await self.find(namespace, name)
        if record is None:
            raise Conflict(409, f"IPAddress {namespace}/{name} came and went; looking again")
        # With this name and another address in it, the object is no lock on either.
        if self.is_for(record, claim) and block_of(record) == block and not meta.is_deleting(record):
            return record
        raise InTheWay(block, self.obstacle(record))

    def obstacle(self, record: Object) -> Obstacle:
        """The address is nobody's we know: the object holds it, until it goes."""
        name, namespace = record["metadata"]["name"], record["metadata"]["namespace"]
        return Obstacle(self, namespace, name, object_key(self.resource, namespace, name), born_at(record))

    def knows(self, record: Object) -> bool:
        held = self.kept.cache.get(record["metadata"]["namespace"], record["metadata"]["name"])
        return held is not None and meta.uid(held) == meta.uid(record)


class Twins:
    """Looks at the other API for an address object of the same name.

    A few claims are asked for by name each: etcd answers that within milliseconds. A crowd shares a request:
    most namespaces use one API only, and a list of at most one object says so for all who asked before it
    went. The API server takes a tenth of a second or two for such a list, until its cache has caught up.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._other: dict[str, IPAddressLedger] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sent: dict[str, int] = defaultdict(int)
        self._answer: dict[str, tuple[int, bool]] = {}
        self._looking: Counter[str] = Counter()

    def pair(self, one: IPAddressLedger, two: IPAddressLedger) -> None:
        self._other = {one.flavour.kind: two, two.flavour.kind: one}

    async def find(self, kind: str, namespace: str, name: str) -> Obstacle | None:
        """The twin, or None. Only reads that were sent after this call began count."""
        other = self._other.get(kind)
        if other is None or other.kept.resource is None:
            return None
        key = f"{other.flavour.kind}/{namespace}"
        self._looking[key] += 1
        try:
            if await self._none_at_all(other, namespace, key):
                return None
            twin = await other.find(namespace, name)
        finally:
            self._looking[key] -= 1
        if twin is None or other.flavour.pool_of_address(twin) is None:
            return None  # no object, or one of another provider, whose names say nothing about ours
        return other.obstacle(twin)

    async def _none_at_all(self, other: IPAddressLedger, namespace: str, key: str) -> bool:
        if self._looking[key] <= FEW or other.kept.cache.count_by("namespace", namespace):
            return False
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


def born_at(record: Object) -> int:
    """The revision at which the object was stored; 0 where it was touched since and nobody can tell.

    One entry in `managedFields` means one writer, its maker, who never edits it. Revisions of one store are
    comparable across kinds.
    """
    writers = record["metadata"].get("managedFields") or ()
    untouched = len(writers) == 1 and not meta.is_deleting(record)
    return int(meta.resource_version(record)) if untouched else 0


def block_of(address: Object) -> Block | None:
    """None where its text is no address to us: Cluster API takes any text, with a zone for one."""
    try:
        return parse_block(address["spec"]["address"])
    except InvalidText:
        return None


def block_key(pool: str, block: Block) -> str:
    """By which the objects for one address of a pool are found."""
    return f"{pool} {block}"


def object_key(resource: Resource, namespace: str, name: str) -> str:
    """Holder key of an address object that no claim of the pool holds, but that is in its way."""
    return f"{resource.key}/{namespace}/{name}"
