"""What the shared claim life asks of this dialect: when to serve, how to write the lease, what to report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from berth.control.cache import Cache
from berth.control.mirror import Kept
from berth.dialects.claim import Bound, Leave, NotStored, Release, Serve, Stance, Wait
from berth.dialects.metal3 import kinds
from berth.dialects.metal3.flavour import Flavour, holder
from berth.dialects.metal3.gate import Gate, is_paused
from berth.dialects.metal3.ledger import Leases, block_of
from berth.dialects.metal3.translate import refusal_message, wanted
from berth.dialects.pool import Desk
from berth.errors import BadRequest, Conflict, Forbidden, Invalid, InvalidText, Taken
from berth.kube import meta
from berth.kube.meta import Ref
from berth.kube.resource import Resource
from berth.leasing.decide import Refusal
from berth.leasing.model import Claim, Reason
from berth.net import Block

if TYPE_CHECKING:
    from berth.dialects.metal3.pools import Pools

Object = dict[str, Any]
EXHAUSTED = {Reason.POOL_EXHAUSTED, Reason.PIN_OUTSIDE}
NOT_READY = {"PoolNotFound", "PoolDeleting", "PoolInvalid", "ClusterNotFound"}


class Book:
    dialect = "metal3"
    announces = False
    pools: Pools

    def __init__(self, flavour: Flavour, kept: Kept, leases: Leases, pools: Cache, gate: Gate) -> None:
        self.flavour = flavour
        self.kept = kept
        self.leases = leases
        self.finalizer = flavour.claim_finalizer
        self.guard_status = flavour.guard_status
        self.wake: Callable[[Ref], None]
        self._pool_objects = pools
        self._gate = gate

    @property
    def resource(self) -> Resource:
        return self.kept.resource or self.kept.watched.versions[0]

    @property
    def cache(self) -> Cache:
        return self.kept.cache

    def is_unsettled(self, claim: Object) -> bool:
        return meta.is_deleting(claim) or not self.flavour.is_bound(claim)

    # When

    def stance(self, claim: Object) -> Stance:
        key = self.flavour.pool_key(claim)
        if key is None or not self._gate.is_watched(claim) or is_paused(claim):
            return Leave()
        pool = self._pool_objects.get(*key.split("/", 1))
        if self._is_held(claim, pool):
            return Leave()
        if meta.is_deleting(claim):
            return self._going(claim)
        if namespace := self.flavour.foreign_namespace(claim):
            name = claim["spec"]["pool"]["name"]
            text = f"IPPool {namespace}/{name} is in another namespace; a claim is served from its own only"
            return Wait("PoolInOtherNamespace", text, stamp=True)
        return self._asking(claim, key, pool)

    def _is_held(self, claim: Object, pool: Object | None) -> bool:
        """Paused: by the pool, by the pool's cluster, or by the cluster the claim itself names."""
        if self._gate.cluster(claim["metadata"]["namespace"], self.flavour.cluster_name(claim)).paused:
            return True
        return pool is not None and (is_paused(pool) or self._gate.linkage(pool).paused)

    def _going(self, claim: Object) -> Stance:
        # Another controller's finalizer says that the address is still in use.
        return Release() if meta.finalizers(claim) == [self.finalizer] else Leave()

    def _asking(self, claim: Object, key: str, pool: Object | None) -> Stance:
        if pool is None:
            return self._wait("PoolNotFound", f"IPPool {key} not found")
        if meta.is_deleting(pool):
            return self._deleting_pool(claim, key)
        named = self.flavour.cluster_name(claim)
        if (
            self._gate.linkage(pool).missing
            or self._gate.cluster(pool["metadata"]["namespace"], named).missing
        ):
            return self._wait("ClusterNotFound", f"the Cluster of IPPool {key} does not exist yet")
        open_pool = self.pools.get(key)
        if open_pool is None or not self._gate.is_watched(pool):
            return Leave()
        if open_pool.fault is not None:
            return self._wait("PoolInvalid", f"IPPool {key} cannot be used: {open_pool.fault}")
        if not meta.has_finalizer(pool, kinds.POOL_FINALIZER):
            return Leave()  # the pool is held before anything is taken from it; its change wakes us
        return self._serving(claim, open_pool.desk)

    def _serving(self, claim: Object, desk: Desk) -> Stance:
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        key = holder(self.flavour, namespace, name)
        if desk.space.leases_of(key):
            return Serve(
                Claim(key, name), (desk,)
            )  # what it has it keeps, whatever the annotation says by now
        try:
            pin = wanted(meta.annotations(claim).get(kinds.WANTED_ADDRESS, ""))
        except InvalidText as error:
            return Wait("InvalidAddress", str(error), stamp=True)
        return Serve(Claim(key, name, pin=pin), (desk,))

    def _deleting_pool(self, claim: Object, key: str) -> Stance:
        if self.flavour.is_bound(claim):
            return Leave()
        return self._wait("PoolDeleting", f"IPPool {key} is being deleted and serves no new claims")

    def _wait(self, reason: str, message: str) -> Wait:
        # Metal3's users take errorMessage for final, so only what is wrong with the claim goes there; a
        # Cluster API claim has a condition that is meant to come and go.
        return Wait(reason, message, stamp=self.flavour.kind == "IPAddressClaim")

    # How

    async def commit(self, claim: Object, desk: Desk, block: Block) -> Object:
        key = self.flavour.pool_key(claim) or ""
        pool = self._pool_objects.get(*key.split("/", 1))
        open_pool = self.pools.get(key)
        if pool is None or open_pool is None:
            raise Conflict(409, f"IPPool {key} is gone; looking again")
        if fault := self.flavour.netconfig_fault(open_pool.spec.netconfig_of(block)):
            raise NotStored(fault)
        try:
            return await self.leases.commit(claim, pool, open_pool.spec, block)
        except (Invalid, BadRequest, Forbidden) as error:
            raise NotStored("Failed to create associated IPAddress object") from error
        except Taken as taken:
            if taken.holder is not None:
                self.pools.stands_in_the_way(taken.holder, desk, block)
            raise

    async def withdraw(self, claim: Object) -> bool:
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        key = holder(self.flavour, namespace, name)
        for record in self.leases.of_holder(key):
            await self.leases.discard(record)
        await self._withdraw_unseen(claim, key)
        return True

    async def _withdraw_unseen(self, claim: Object, key: str) -> None:
        """Blocks taken in memory whose create was never answered: look before letting go."""
        open_pool = self.pools.get(self.flavour.pool_key(claim) or "")
        if open_pool is None:
            return
        for block in open_pool.desk.space.leases_of(key):
            name = open_pool.spec.address_name(block)
            record = await self.leases.find(claim["metadata"]["namespace"], name)
            if record is not None and self.leases.holder_of(record) == key and block_of(record) == block:
                await self.leases.discard(record)
            open_pool.desk.free(block, key)

    def forget(self, ref: Ref) -> None:
        self.pools.forget(ref)

    # What is reported

    def bound_status(self, claim: Object, bound: Bound) -> Object:
        return self.flavour.bound_status(claim, bound.record)

    def refused_status(self, claim: Object, refusal: Refusal | Wait) -> Object:
        if isinstance(refusal, Wait):
            reason = "PoolNotReady" if refusal.reason in NOT_READY else "AllocationFailed"
            return self.flavour.refused_status(claim, reason, refusal.message)
        reason = "PoolExhausted" if refusal.reason in EXHAUSTED else "AllocationFailed"
        return self.flavour.refused_status(claim, reason, self.message(refusal))

    def message(self, refusal: Refusal) -> str:
        return refusal_message(refusal)
