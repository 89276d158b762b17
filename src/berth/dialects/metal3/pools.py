"""The IPPools at work: a desk each, fed with the address objects of both APIs; and a pool's own life.

An address counts as taken from the moment its object is seen, or was written by us, until it is gone, whether
it lies in the pool's ranges or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from berth import log
from berth.control.mirror import Kept
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.metal3 import kinds
from berth.dialects.metal3.gate import Gate, is_paused
from berth.dialects.metal3.ledger import Leases, Obstacle, block_of, object_key
from berth.dialects.metal3.status import pool_status
from berth.dialects.metal3.translate import PoolSpec, read_pool
from berth.dialects.pool import Desk
from berth.dialects.shape import Kit
from berth.errors import InvalidText, NotFound
from berth.kube import meta, patch
from berth.kube.meta import Ref
from berth.leasing.model import Pool
from berth.metrics import PoolCounts, PoolKey
from berth.net import Block

Object = dict[str, Any]
_log = log.get("berth.metal3")
# However many claims arrive, a pool's status is written about once a second.
STATUS_SECONDS = 1.0


@dataclass(slots=True)
class OpenPool:
    desk: Desk
    spec: PoolSpec
    uid: str
    fault: str | None = None  # why the spec cannot be read, where admission was bypassed


class Pools:
    def __init__(self, leases: tuple[Leases, Leases]) -> None:
        self.leases = leases
        self.touched: Callable[[str], None]
        self._open: dict[str, OpenPool] = {}
        self._in_the_way: dict[str, tuple[Obstacle, Desk, Block]] = {}

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
                held.spec = spec
                held.desk.edit(spec.pool)
            return
        opened = OpenPool(Desk(spec.pool, wake), spec, meta.uid(pool), fault)
        self._open[key] = opened
        for leases, address in self.addresses(key):
            self._adopt(opened, leases, address)

    def close(self, key: str) -> None:
        self._open.pop(key, None)

    def addresses(self, key: str) -> Iterator[tuple[Leases, Object]]:
        for leases in self.leases:
            for address in leases.kept.cache.by("pool", key):
                yield leases, address

    def count(self, key: str) -> int:
        return sum(leases.kept.cache.count_by("pool", key) for leases in self.leases)

    def address_changed(self, leases: Leases, old: Object | None, new: Object | None) -> None:
        if old is not None and (new is None or meta.uid(old) != meta.uid(new)):
            self._gone(leases, old)
        if new is not None and (old is None or meta.uid(old) != meta.uid(new)):
            key = leases.flavour.pool_of_address(new)
            if key is not None and (opened := self._open.get(key)) is not None:
                self._no_obstacle(leases, new)
                self._adopt(opened, leases, new)
                self.touched(key)

    def _adopt(self, opened: OpenPool, leases: Leases, address: Object) -> None:
        try:
            block = block_of(address)
        except InvalidText as error:
            _log.warning(
                "address object cannot be read", address=address["metadata"]["name"], error=str(error)
            )
            return
        other = opened.desk.adopt(block, leases.holder_of(address))
        if other is not None and self._is_recorded(other, block):
            _log.warning(
                "one address, two objects",
                address=str(block.address),
                object=address["metadata"]["name"],
                holder=other,
            )

    def _is_recorded(self, holder: str, block: Block) -> bool:
        """Does an object say so, or only our own memory of a claim that is still to be stored?"""
        records = (record for leases in self.leases for record in leases.kept.cache.by("holder", holder))
        return any(block_of(record) == block for record in records)

    def stands_in_the_way(self, obstacle: Obstacle, desk: Desk, block: Block) -> None:
        """The address is out until this object goes, whoever's it is."""
        self._in_the_way[obstacle.key] = (obstacle, desk, block)

    def obstacles(self) -> tuple[Obstacle, ...]:
        return tuple(obstacle for obstacle, *_ in self._in_the_way.values())

    def cleared(self, key: str) -> None:
        if (way := self._in_the_way.pop(key, None)) is not None:
            obstacle, desk, block = way
            desk.free(block, obstacle.holder)

    def _no_obstacle(self, leases: Leases, address: Object) -> None:
        """What was in our way turns out to be a lease of a pool of ours."""
        about = address["metadata"]
        way = self._in_the_way.pop(object_key(leases.resource, about["namespace"], about["name"]), None)
        if way is not None:
            obstacle, desk, block = way
            desk.space.release(block, obstacle.holder)

    def _gone(self, leases: Leases, address: Object) -> None:
        namespace, name = address["metadata"]["namespace"], address["metadata"]["name"]
        self.cleared(object_key(leases.resource, namespace, name))
        key = leases.flavour.pool_of_address(address)
        opened = self._open.get(key) if key is not None else None
        if opened is None or key is None:
            return
        try:
            block = block_of(address)
        except InvalidText:
            return
        opened.desk.free(block, leases.holder_of(address))
        self.touched(key)


def _read(pool: Object, key: str) -> tuple[PoolSpec, str | None]:
    try:
        return read_pool(pool), None
    except InvalidText as error:
        return PoolSpec(Pool(key, ()), (), ""), str(error)


class PoolLife:
    """An IPPool's own life: linked to its cluster, held while it has addresses, its use in the status."""

    def __init__(self, kit: Kit, kept: Kept, pools: Pools, gate: Gate) -> None:
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
        if linkage.missing or linkage.paused:
            return DONE
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
        let_go = meta.without_finalizer(pool, kinds.POOL_FINALIZER)
        if let_go is not pool:
            change = {"metadata": {"finalizers": meta.finalizers(let_go)}}
            await self._write(pool, patch.guarded(change, pool))
        return DONE

    async def _show(self, pool: Object, ref: Ref) -> Outcome:
        opened = self._pools.get(f"{ref.namespace}/{ref.name}")
        if opened is None:
            return DONE
        usage = opened.desk.space.usage()
        counts = PoolCounts(usage.total, usage.used, usage.free, usage.reserved)
        self._kit.metrics.pool(PoolKey("metal3", ref.namespace, ref.name), counts)
        desired = pool_status(pool, opened, self._pools, datetime.now(UTC))
        change = patch.diff(pool.get("status") or {}, desired)
        if change is None:
            return DONE
        wait = self._written_at.get(ref, 0.0) + STATUS_SECONDS - time.monotonic()
        if wait > 0:
            return After(wait)
        self._written_at[ref] = time.monotonic()
        await self._write(pool, {"metadata": {"uid": meta.uid(pool)}, "status": change}, "status")
        return DONE

    async def _write(self, pool: Object, body: Object, subresource: str = "") -> Object:
        namespace, name = pool["metadata"]["namespace"], pool["metadata"]["name"]
        try:
            written = await self._kit.client.patch(kinds.POOL, name, body, namespace, subresource=subresource)
        except NotFound:
            self._kept.cache.bury(pool)
            return pool
        if meta.is_deleting(written) and not meta.finalizers(written):
            self._kept.cache.bury(written)
        else:
            self._kept.cache.observe(written)
        return written


def _linked(pool: Object, cluster: Object | None) -> Object:
    """The pool with the labels and the owner its `clusterName` asks for, none from an earlier name."""
    name = (pool.get("spec") or {}).get("clusterName")
    if not name:
        return pool
    labelled = meta.with_labels(pool, {kinds.CLUSTER_LABEL: name, kinds.PROVIDER_LABEL: kinds.PROVIDER})
    if cluster is None:
        return labelled
    owner = {**meta.owner_reference(cluster), "controller": False}
    references = [o for o in meta.owners(pool) if not _is_cluster(o) or _matches(o, owner)]
    if not any(_is_cluster(o) for o in references):
        references.append(owner)
    if references == meta.owners(pool):
        return labelled
    return {**labelled, "metadata": {**labelled["metadata"], "ownerReferences": references}}


def _is_cluster(owner: Object) -> bool:
    return owner.get("kind") == "Cluster" and str(owner.get("apiVersion", "")).startswith("cluster.x-k8s.io/")


def _matches(owner: Object, wanted: Object) -> bool:
    return bool(owner.get("name") == wanted["name"] and owner.get("uid") == wanted["uid"])
