"""The IPPools at work: a desk each, fed with the address objects of both APIs; and a pool's own life.

An address counts as taken from the moment its object is seen, or was written by us, until it is gone, whether
it lies in the pool's ranges or not. Of several objects for one address the first holds it; the others, and
those whose name is another address's, are *odd*: they give nothing to anybody, and the pool says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from berth import log
from berth.control.events import Recorder
from berth.control.informers import Informer
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.dialect import Dependencies
from berth.dialects.metal3 import kinds
from berth.dialects.metal3.leases import IPAddressLedger, Obstacle, block_key, block_of, object_key
from berth.dialects.metal3.pause import Gate, is_paused
from berth.dialects.metal3.status import pool_status
from berth.dialects.metal3.translate import PoolSpec, addresses_of_name, read_pool
from berth.dialects.pool import Desk
from berth.errors import InvalidText, NotFound
from berth.kube import meta, patch
from berth.kube.meta import Ref
from berth.leasing.model import Pool
from berth.leasing.space import UNKNOWN_HOLDER
from berth.metrics import PoolCounts, PoolKey
from berth.net import Block

Object = dict[str, Any]
Owned = tuple[IPAddressLedger, Object]
_log = log.get("berth.metal3")
# Why an address object gives its address to nobody: the word of the Event, the condition and the log.
ADDRESS_TAKEN = "AddressTaken"
NAME_MISMATCH = "NameMismatch"
GIVES_NOTHING = "this IPAddress gives it to nobody"
# However many claims arrive, a pool's status is written about once a second.
STATUS_SECONDS = 1.0


Rank = tuple[bool, bool, bool, str, str, str]


@dataclass(frozen=True, slots=True)
class Odd:
    """An address object that gives its address to nobody, and why."""

    name: str
    reason: str
    message: str


@dataclass(slots=True)
class OpenPool:
    desk: Desk
    spec: PoolSpec
    uid: str
    fault: str | None = None  # why the spec cannot be read, where admission was bypassed
    odd: dict[str, Odd] = field(default_factory=dict)  # by object
    firsts: dict[Block, Owned] = field(default_factory=dict)  # who holds it, where several objects say so


class IPPools:
    def __init__(self, leases: tuple[IPAddressLedger, IPAddressLedger], events: Recorder) -> None:
        self.leases = leases
        self.touched: Callable[[str], None]
        self.wake: Callable[[Ref], None]
        self.is_bound: Callable[[IPAddressLedger, Object], bool]  # does its claim name the object?
        self._events = events
        self._open: dict[str, OpenPool] = {}
        # By object: one may be in the way of several pools that share a namePrefix.
        self._in_the_way: dict[str, dict[tuple[Desk, Block], Obstacle]] = {}

    def get(self, key: str) -> OpenPool | None:
        return self._open.get(key)

    def open(self, pool: Object, wake: Callable[[Ref], None]) -> None:
        """A new or edited pool. Existing addresses come first, before anyone is served from it."""
        key = f"{pool['metadata']['namespace']}/{pool['metadata']['name']}"
        spec, fault = _read(pool, key)
        held = self._open.get(key)
        if held is not None:
            held.fault = fault
            if fault is None and held.spec != spec:
                renamed = held.spec.name_prefix != spec.name_prefix
                held.spec = spec
                held.desk.edit(spec.pool)
                if renamed:  # it could not be read before: whose name is whose address's was unknown
                    held.firsts.clear()
                    self._adopt_all(key, held)
            return
        opened = OpenPool(Desk(spec.pool, wake), spec, meta.uid(pool), fault)
        self._open[key] = opened
        self._adopt_all(key, opened)

    def _adopt_all(self, key: str, opened: OpenPool) -> None:
        for leases, address in self.addresses(key):
            self._adopt(opened, leases, address)

    def close(self, key: str) -> None:
        self._open.pop(key, None)

    def forget(self, holder: str) -> None:
        """A claim is gone: what it had in memory only, with no object that says so, is free."""
        for key, opened in self._open.items():
            for block in opened.desk.space.leases_of(holder):
                if not self._is_recorded(key, holder, block):
                    opened.desk.free(block, holder)
                    self.touched(key)

    def addresses(self, key: str) -> Iterator[tuple[IPAddressLedger, Object]]:
        for leases in self.leases:
            for address in leases.kept.cache.by("pool", key):
                yield leases, address

    def count(self, key: str) -> int:
        return sum(leases.kept.cache.count_by("pool", key) for leases in self.leases)

    def came(self, leases: IPAddressLedger, address: Object) -> None:
        key = leases.flavour.pool_of_address(address)
        if key is not None and (opened := self._open.get(key)) is not None:
            self._adopt(opened, leases, address)
            self.touched(key)

    def _adopt(self, opened: OpenPool, leases: IPAddressLedger, address: Object) -> None:
        block = block_of(address)
        if block is None:
            _log.warning(
                "address object cannot be read",
                object=address["metadata"]["name"],
                address=address["spec"]["address"],
            )
            return
        self._no_obstacle(opened.desk, block, leases, address)
        owned = (leases, address)
        if sum(self._counts(opened, block)) < 2:
            self._weigh(opened, block, owned, None)
            return
        first = opened.firsts.get(block)
        if first is None:
            self._weigh_all(opened, block)
        elif self._rank(opened, block, owned) < self._rank(opened, block, first):
            opened.firsts[block] = owned
            self._weigh(opened, block, owned, None)
            self._weigh(opened, block, first, owned)
        else:
            self._weigh(opened, block, owned, None if _is_same(first, owned) else first)

    def _weigh_all(self, opened: OpenPool, block: Block) -> None:
        """There are several objects for one address: the first holds it, then the others are looked at."""
        first, *others = self._in_order(opened, block)
        opened.firsts[block] = first
        self._weigh(opened, block, first, None)
        for other in others:
            self._weigh(opened, block, other, first)

    def _counts(self, opened: OpenPool, block: Block) -> list[int]:
        key = block_key(opened.spec.pool.name, block)
        return [leases.kept.cache.count_by("block", key) for leases in self.leases]

    def _in_order(self, opened: OpenPool, block: Block) -> list[Owned]:
        key = block_key(opened.spec.pool.name, block)
        found = [(leases, one) for leases in self.leases for one in leases.kept.cache.by("block", key)]
        return sorted(found, key=lambda owned: self._rank(opened, block, owned))

    def _rank(self, opened: OpenPool, block: Block, owned: Owned) -> Rank:
        """Whom its claim names before all others; then whose name is the lock; then by age."""
        leases, address = owned
        about = address["metadata"]
        locked = about["name"] == opened.spec.address_name(block)
        misnamed = not locked and self._other_address(opened, block, address) is not None
        bound = self.is_bound(leases, address)
        made_at = about.get("creationTimestamp", "")
        return not bound, misnamed, not locked, made_at, about["name"], leases.flavour.kind

    def _other_address(self, opened: OpenPool, block: Block, address: Object) -> Block | None:
        """Whose the object's name is, if that is another address of the pool."""
        named = addresses_of_name(opened.spec.name_prefix, address["metadata"]["name"])
        return named[0] if named and block not in named else None

    def _weigh(self, opened: OpenPool, block: Block, owned: Owned, first: Owned | None) -> None:
        """Does the object hold the address? `first`: the other one that does, if there is one."""
        leases, address = owned
        key, holder, desk = leases.key_of_object(address), leases.holder_of(address), opened.desk
        odd = self._oddity(opened, block, owned, first)
        if odd is None:
            desk.adopt(block, holder)
            if opened.odd.pop(key, None) is not None:
                desk.space.release(block, key)
                name = leases.flavour.claim_of_address(address)
                self.wake(Ref(leases.flavour.kind, address["metadata"]["namespace"], name))
            return
        if odd.reason == NAME_MISMATCH:
            desk.adopt(block, key)  # nobody else is given it either: its own name would be no lock
        desk.space.release(block, holder)
        if opened.odd.get(key) != odd:
            opened.odd[key] = odd
            self._say(opened, address, odd)

    def _oddity(self, opened: OpenPool, block: Block, owned: Owned, first: Owned | None) -> Odd | None:
        leases, address = owned
        name, holder, text = address["metadata"]["name"], leases.holder_of(address), block.address
        lock = opened.spec.address_name(block)
        if first is not None:
            other = first[0].holder_of(first[1])
            twins = name == lock == first[1]["metadata"]["name"] and not self.is_bound(*first)
            if other == holder or twins:  # which of two twins goes is found out by whoever made them
                return None
            by = f"{other} (IPAddress {first[1]['metadata']['name']})"
            return Odd(name, ADDRESS_TAKEN, f"{text} is held by {by}: {GIVES_NOTHING}; delete it")
        if self.is_bound(leases, address) or name == lock:
            return None
        if (other_address := self._other_address(opened, block, address)) is not None:
            said = f"its name is that of {other_address.address}, its address is {text}"
            return Odd(name, NAME_MISMATCH, f"{said}: {GIVES_NOTHING}; delete it, or make it as {lock}")
        current = opened.desk.space.holder_of(block)
        if current in (None, holder, UNKNOWN_HOLDER) or self._is_recorded(
            opened.spec.pool.name, current, block
        ):
            return None
        # Someone is being given it this moment, and the name that is its lock is not this object's.
        return Odd(name, ADDRESS_TAKEN, f"{text} is held by {current}: {GIVES_NOTHING}; delete it")

    def _say(self, opened: OpenPool, address: Object, odd: Odd) -> None:
        namespace, name = opened.spec.pool.name.split("/", 1)
        _log.warning(
            "address object gives its address to nobody",
            object=f"{namespace}/{odd.name}",
            reason=odd.reason,
            cause=odd.message,
        )
        pool = {
            "apiVersion": kinds.POOL.api_version,
            "kind": "IPPool",
            "metadata": {"namespace": namespace, "name": name, "uid": opened.uid},
        }
        self._events.event(address, "Warning", odd.reason, odd.message)
        self._events.event(pool, "Warning", odd.reason, f"IPAddress {odd.name}: {odd.message}")

    def rival(self, key: str, leases: IPAddressLedger, address: Object, block: Block) -> Obstacle | None:
        """Who has the address, if the object is odd."""
        opened = self._open.get(key)
        if opened is None or leases.key_of_object(address) not in opened.odd:
            return None
        first = opened.firsts.get(block)
        return leases.obstacle(address) if first is None else first[0].obstacle(first[1])

    def is_odd(self, key: str, leases: IPAddressLedger, address: Object) -> bool:
        opened = self._open.get(key)
        return opened is not None and leases.key_of_object(address) in opened.odd

    def settle(self, opened: OpenPool) -> None:
        """Whoever was being given an address may have gone without it: then the object holds it after all."""
        for leases in self.leases if opened.odd else ():
            for address in leases.kept.cache.by("pool", opened.spec.pool.name):
                block = block_of(address)
                if block is None or block in opened.firsts or leases.key_of_object(address) not in opened.odd:
                    continue
                self._weigh(opened, block, (leases, address), None)

    def _is_recorded(self, key: str, holder: str, block: Block) -> bool:
        """Does an object of the pool say so, or only our own memory of a claim that is still to be stored?"""
        return any(
            block_of(record) == block and leases.flavour.pool_of_address(record) == key
            for leases in self.leases
            for record in leases.kept.cache.by("holder", holder)
        )

    def stands_in_the_way(self, obstacle: Obstacle, desk: Desk, block: Block) -> None:
        """The address is out until this object goes, whoever's it is."""
        self._in_the_way.setdefault(obstacle.key, {})[desk, block] = obstacle

    def obstacles(self) -> tuple[Obstacle, ...]:
        return tuple(next(iter(ways.values())) for ways in self._in_the_way.values())

    def cleared(self, key: str) -> None:
        for (desk, block), obstacle in self._in_the_way.pop(key, {}).items():
            desk.free(block, obstacle.holder)

    def _no_obstacle(self, desk: Desk, block: Block, leases: IPAddressLedger, address: Object) -> None:
        """What was in this pool's way turns out to be a lease of its own."""
        key = object_key(leases.resource, address["metadata"]["namespace"], address["metadata"]["name"])
        ways = self._in_the_way.get(key, {})
        if (obstacle := ways.pop((desk, block), None)) is not None:
            desk.space.release(block, obstacle.holder)
            if not ways:
                del self._in_the_way[key]

    def gone(self, leases: IPAddressLedger, address: Object, *, kept: bool) -> None:
        """`kept`: the claim it was made for lives and names it, so the address stays the claim's."""
        namespace, name = address["metadata"]["namespace"], address["metadata"]["name"]
        self.cleared(object_key(leases.resource, namespace, name))
        key, block = leases.flavour.pool_of_address(address), block_of(address)
        opened = self._open.get(key) if key is not None else None
        if opened is None or key is None or block is None:
            return
        holder, own_key = leases.holder_of(address), leases.key_of_object(address)
        opened.odd.pop(own_key, None)
        if not kept and not self._is_recorded(key, holder, block):
            opened.desk.free(block, holder)
        opened.desk.free(block, own_key)
        if not kept:
            self._next(opened, block, (leases, address))
        self.touched(key)

    def _next(self, opened: OpenPool, block: Block, gone: Owned) -> None:
        """Another object may have waited for the address."""
        first = opened.firsts.get(block)
        if first is None:
            return
        left = sum(self._counts(opened, block))
        if _is_same(first, gone) and left:
            self._weigh_all(opened, block)
        if left < 2:
            opened.firsts.pop(block, None)


def _is_same(one: Owned, two: Owned) -> bool:
    return one[0] is two[0] and meta.uid(one[1]) == meta.uid(two[1])


def _read(pool: Object, key: str) -> tuple[PoolSpec, str | None]:
    try:
        return read_pool(pool), None
    except InvalidText as error:
        return PoolSpec(Pool(key, ()), (), ""), str(error)


class PoolLife:
    """An IPPool's own life: linked to its cluster, held while it has addresses, its use in the status."""

    def __init__(self, kit: Dependencies, kept: Informer, pools: IPPools, gate: Gate) -> None:
        self._kit = kit
        self._kept = kept
        self._pools = pools
        self._gate = gate
        self._written_at: dict[Ref, float] = {}

    async def reconcile(self, ref: Ref) -> Outcome:
        pool = self._kept.cache.get(ref.namespace, ref.name)
        if pool is None:
            self._written_at.pop(ref, None)
            self._kit.metrics.pool_gone(PoolKey("metal3", ref.namespace, ref.name))
            return DONE
        if not self._gate.is_watched(pool) or is_paused(pool):
            return DONE
        linkage = self._gate.linkage(pool)
        if meta.is_deleting(pool) and not linkage.paused:
            return await self._delete(pool, ref)
        pool = await self._link(pool)
        if linkage.paused or not meta.has_finalizer(pool, kinds.POOL_FINALIZER):
            return DONE  # not held: its Cluster was never there, and nothing was given
        return await self._show(pool, ref)

    async def _link(self, pool: Object) -> Object:
        """Labels and owner from the cluster, and our finalizer, in one write; nothing if all is there."""
        linkage = self._gate.linkage(pool)
        linked = _linked(pool, linkage.cluster)
        if not linkage.missing and not linkage.paused and not meta.is_deleting(pool):
            linked = meta.with_finalizer(linked, kinds.POOL_FINALIZER)
        change = patch.diff(pool["metadata"], linked["metadata"])
        if change is None:
            return pool
        return await self._write(pool, patch.guarded({"metadata": change}, pool))

    async def _delete(self, pool: Object, ref: Ref) -> Outcome:
        key = f"{ref.namespace}/{ref.name}"
        if self._pools.count(key):
            return await self._show(pool, ref)
        await self._kept.remove_finalizer(pool, kinds.POOL_FINALIZER)
        return DONE

    async def _show(self, pool: Object, ref: Ref) -> Outcome:
        opened = self._pools.get(f"{ref.namespace}/{ref.name}")
        if opened is None:
            return DONE
        self._pools.settle(opened)
        usage = opened.desk.space.usage()
        counts = PoolCounts(usage.total, usage.used, usage.free, usage.reserved)
        self._kit.metrics.pool(PoolKey("metal3", ref.namespace, ref.name), counts)
        wait = self._written_at.get(ref, 0.0) + STATUS_SECONDS - time.monotonic()
        if wait > 0:
            return After(wait)  # before the look at every address: under a flood we are asked all the time
        desired = pool_status(pool, opened, self._pools, datetime.now(UTC))
        change = patch.diff(pool.get("status") or {}, desired)
        if change is None:
            return DONE
        self._written_at[ref] = time.monotonic()
        await self._write(pool, {"metadata": {"uid": meta.uid(pool)}, "status": change}, "status")
        return DONE

    async def _write(self, pool: Object, body: Object, subresource: str = "") -> Object:
        try:
            return await self._kept.patch(pool, body, subresource=subresource)
        except NotFound:
            return pool


def _linked(pool: Object, cluster: Object | None) -> Object:
    """The pool with the labels and the owner its `clusterName` asks for, none from an earlier name."""
    name = (pool.get("spec") or {}).get("clusterName")
    labels = {kinds.CLUSTER_LABEL: name or None, kinds.PROVIDER_LABEL: kinds.PROVIDER if name else None}
    if not name and meta.labels(pool).get(kinds.PROVIDER_LABEL) != kinds.PROVIDER:
        return pool  # it never named one, and whatever a person put there is not ours
    labelled = meta.with_labels(pool, labels)
    references = [o for o in meta.owners(pool) if not _is_cluster(o) or _is_it(o, name, cluster)]
    if cluster is not None and not any(_is_cluster(o) for o in references):
        references.append({**meta.owner_reference(cluster), "controller": False})
    if references == meta.owners(pool):
        return labelled
    return {**labelled, "metadata": {**labelled["metadata"], "ownerReferences": references}}


def _is_cluster(owner: Object) -> bool:
    return owner.get("kind") == "Cluster" and str(owner.get("apiVersion", "")).startswith("cluster.x-k8s.io/")


def _is_it(owner: Object, name: str | None, cluster: Object | None) -> bool:
    """The Cluster the pool names; while that is not there, whichever had the name."""
    return owner.get("name") == name and (cluster is None or owner.get("uid") == meta.uid(cluster))
