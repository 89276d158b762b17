"""What the claim reconciler asks of this dialect: when to serve, how to write the lease, what to report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from berth import log
from berth.control.cache import Cache
from berth.control.informers import Informer
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.claim import (
    Again,
    Allocation,
    Ask,
    ClaimKind,
    Leave,
    NotStored,
    Plan,
    Refused,
    Release,
    Serve,
    Wait,
)
from berth.dialects.metal3 import kinds
from berth.dialects.metal3.claim_api import made_for
from berth.dialects.metal3.leases import InTheWay, IPAddressLedger, StepBack, block_of
from berth.dialects.metal3.pause import Gate, is_paused
from berth.dialects.metal3.release import Returns
from berth.dialects.metal3.translate import NOT_CREATED, addresses_of_name, refusal_message, wanted
from berth.dialects.pool import Desk
from berth.errors import BadRequest, Conflict, Forbidden, Invalid, InvalidText, NotFound, Taken
from berth.kube import meta, patch
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.leasing.decide import Refusal
from berth.leasing.model import Claim, Reason
from berth.net import Block

if TYPE_CHECKING:
    from berth.dialects.metal3.pools import IPPools, OpenPool

Object = dict[str, Any]
_log = log.get("berth.metal3")
ADDRESS_TAKEN = "AddressTaken"  # two met at one address
# Put there by the API server for its garbage collector, which waits for the address, and so for us.
COLLECTORS = {"foregroundDeletion", "orphan"}
FILLING_SECONDS = 0.2  # Cluster API was installed just now; who has what is being listed


class PoolClaimHandler:
    """Claims of either API that draw from an IPPool."""

    pools: IPPools

    def __init__(
        self, kept: Informer, leases: IPAddressLedger, pools: Cache, gate: Gate, client: Client
    ) -> None:
        flavour = leases.flavour
        self.flavour = flavour
        self.informer = kept
        self.leases = leases
        self.kind = ClaimKind("metal3", flavour.claim_finalizer)
        self._pool_objects = pools
        self._gate = gate
        self._client = client
        self.returns = Returns(self)

    @property
    def cache(self) -> Cache:
        return self.informer.cache

    def is_unsettled(self, claim: Object) -> bool:
        return meta.is_deleting(claim) or self.leases.named_by(claim) is None

    def state(self, claim: Object | None) -> str:
        """For the metrics; empty: not ours to count."""
        if claim is None or self.flavour.pool_key(claim) is None:
            return ""
        return "Bound" if self.flavour.bound_name(claim) else "Waiting"

    # When

    async def plan(self, claim: Object) -> Plan:
        if not self.leases.kept.cache.filled:
            return Again(FILLING_SECONDS)
        plan = self._planned(claim)
        if isinstance(plan, Serve) and await self.catch_up(claim):
            return Again()  # what it names is known now: decide with it
        return plan

    def _planned(self, claim: Object) -> Plan:
        key = self.flavour.pool_key(claim)
        if key is None or not self._gate.is_watched(claim) or is_paused(claim):
            return Leave()
        pool = self._pool_objects.get(*key.split("/", 1))
        if self._is_held(claim, pool):
            return Leave()
        if meta.is_deleting(claim):
            return self._going(claim)
        return self._asking(claim, key, pool)

    def _is_held(self, claim: Object, pool: Object | None) -> bool:
        """Paused: by the pool, by the pool's cluster, or by the cluster the claim itself names."""
        if self._gate.cluster(claim["metadata"]["namespace"], self.flavour.cluster_name(claim)).paused:
            return True
        return pool is not None and self._is_pool_held(pool)

    def _is_pool_held(self, pool: Object) -> bool:
        return is_paused(pool) or self._gate.linkage(pool).paused

    def leaves(self, key: str) -> bool:
        """The pool is there, and nothing of it is to be touched now."""
        pool = self._pool_objects.get(*key.split("/", 1))
        return pool is not None and (not self._gate.is_watched(pool) or self._is_pool_held(pool))

    def _going(self, claim: Object) -> Plan:
        # Another controller's finalizer says that the address is still in use.
        others = set(meta.finalizers(claim)) - COLLECTORS - {self.kind.finalizer}
        return Release() if not others and meta.has_finalizer(claim, self.kind.finalizer) else Leave()

    def _asking(self, claim: Object, key: str, pool: Object | None) -> Plan:
        if (hindrance := self._hindrance(claim, key, pool)) is not None:
            # Who was served before keeps what it has, and its status says so.
            return Leave() if self.flavour.bound_name(claim) else hindrance
        open_pool = self.pools.get(key)
        if pool is None or open_pool is None or not self._gate.is_watched(pool):
            return Leave()
        if not meta.has_finalizer(pool, kinds.POOL_FINALIZER):
            return Leave()  # the pool is held before anything is taken from it; its change wakes us
        return self._serving(claim, open_pool)

    def _hindrance(self, claim: Object, key: str, pool: Object | None) -> Wait | None:
        """Why nobody new is served from the pool, whatever is free in it."""
        if namespace := self.flavour.foreign_namespace(claim):
            name = claim["spec"]["pool"]["name"]
            text = f"IPPool {namespace}/{name} is in another namespace; a claim is served from its own only"
            return Wait("PoolInOtherNamespace", text)
        if pool is None:
            return Wait("PoolNotFound", f"IPPool {key} not found")
        if meta.is_deleting(pool):
            return Wait("PoolDeleting", f"IPPool {key} is being deleted and serves no new claims")
        if missing := self._missing_cluster(claim, pool):
            return Wait("ClusterNotFound", f"Cluster {missing} does not exist yet")
        open_pool = self.pools.get(key)
        if open_pool is not None and open_pool.fault is not None and self._gate.is_watched(pool):
            return Wait("PoolInvalid", f"IPPool {key} cannot be used: {open_pool.fault}")
        return None

    def _missing_cluster(self, claim: Object, pool: Object) -> str:
        """The Cluster that the pool or the claim itself names and that is not there; empty if none is."""
        namespace = pool["metadata"]["namespace"]
        for whose, name in (
            (f"of IPPool {namespace}/{pool['metadata']['name']}", pool["spec"].get("clusterName")),
            (f"of this {self.flavour.kind}", self.flavour.cluster_name(claim)),
        ):
            if self._gate.cluster(namespace, name).missing:
                return f"{namespace}/{name} {whose}"
        return ""

    def _serving(self, claim: Object, open_pool: OpenPool) -> Plan:
        key, name = self.leases.key_of(claim), claim["metadata"]["name"]
        desks = (open_pool.desk,)
        if (record := self.leases.named_by(claim)) is not None:
            block = block_of(record)
            if block is None or self.pools.is_odd(open_pool.spec.pool.name, self.leases, record):
                return Leave()  # two claims show one address since before: neither is moved, the pool says so
            return Serve((Ask(Claim(key, name, pin=block), desks),))
        if open_pool.desk.space.leases_of(key):
            # What it has it keeps, whatever the annotation says by now.
            return Serve((Ask(Claim(key, name), desks),))
        if (lost := self._lost(claim, open_pool)) is not None:
            return Serve((Ask(Claim(key, pin=lost), desks),))
        try:
            pin = wanted(meta.annotations(claim).get(kinds.WANTED_ADDRESS, ""))
        except InvalidText as error:
            return Wait("InvalidAddress", str(error))
        return Serve((Ask(Claim(key, name, pin=pin or self._had(claim, open_pool)), desks),))

    def _had(self, claim: Object, open_pool: OpenPool) -> Block | None:
        """What it had before a backup brought it back, perhaps before its address object. It insists on
        nothing: where that is another's by now, or reserved, it gets what there is."""
        try:
            had = wanted(meta.annotations(claim).get(kinds.HAD_ADDRESS, ""))
        except InvalidText:
            return None
        space = open_pool.desk.space
        if had is None or claim["metadata"]["name"] in space.pool.reservations:
            return None  # what is reserved for it is its own, whatever it had
        return had if space.is_free(had) else None

    def _lost(self, claim: Object, open_pool: OpenPool) -> Block | None:
        """The claim names an address whose object is gone: it gets the same one again, if it still can."""
        named = addresses_of_name(open_pool.spec.name_prefix, self.flavour.bound_name(claim))
        return next((block for block in named if open_pool.desk.space.is_free(block)), None)

    # How

    def marks(self, claim: Object, blocks: tuple[Block, ...]) -> list[patch.Operation]:
        said = meta.annotations(claim).get(kinds.HAD_ADDRESS)
        if said is None and self.flavour.bound_name(claim):
            return []  # served before, or by upstream: left as it is
        return patch.set_annotation(claim, kinds.HAD_ADDRESS, blocks[0].address if blocks else None)

    async def write(self, claim: Object, desk: Desk, block: Block) -> Object:
        key = self.flavour.pool_key(claim) or ""
        pool = self._pool_objects.get(*key.split("/", 1))
        open_pool = self.pools.get(key)
        if pool is None or open_pool is None:
            raise Conflict(409, f"IPPool {key} is gone; looking again")
        try:
            record = await self.leases.commit(claim, pool, open_pool.spec, block)
            self._refuse_odd(claim, key, record, block)
        except (Invalid, BadRequest, Forbidden) as error:
            _log.warning("the API server refuses an IPAddress", block=str(block), error=str(error))
            raise NotStored(NOT_CREATED, str(error)) from error
        except StepBack as step:
            await self._step_back(claim, step)
            self.pools.stands_in_the_way(step.obstacle, desk, block)
            raise Taken(block, step.obstacle.holder) from step
        except InTheWay as taken:
            self.pools.stands_in_the_way(taken.obstacle, desk, block)
            raise
        record = await self._made_ours(claim, record)
        await self._tidy(claim, record, desk)
        return record

    def _refuse_odd(self, claim: Object, key: str, record: Object, block: Block) -> None:
        """Another object has the address: what was just stored, or made by hand, is no lease."""
        rival = self.pools.rival(key, self.leases, record, block)
        if rival is None or record["metadata"]["name"] == self.flavour.bound_name(claim):
            return
        if made_for(self.flavour, record) == meta.uid(claim) and not rival.is_object(record):
            raise StepBack(record, rival)
        raise InTheWay(block, rival)

    async def _made_ours(self, claim: Object, record: Object) -> Object:
        """What was made for an earlier claim of the name says whose it is before anyone relies on it: an
        operator that hears late of the earlier one's end gives back what was made for that one."""
        named = record["metadata"]["name"] == self.flavour.bound_name(claim)
        if named or made_for(self.flavour, record) in (None, meta.uid(claim)):
            return record
        if not await self.returns.is_still(claim):
            raise Conflict(409, f"{self.leases.key_of(claim)} is gone; looking again")
        return await self.leases.take_over(record, claim)

    async def _step_back(self, claim: Object, step: StepBack) -> None:
        """Give an object back which the claim does not name, and be sure that it never will.

        First the object is marked as going, then the claim is written over the very version we looked at,
        then the object goes. Another operator that wants to bind the two either was first, and our write is
        refused; or it read the claim before our write, and its own is refused; or it reads the object after
        that, and sees the mark.
        """
        going = step.obstacle.is_object(step.record)
        if not going and made_for(self.flavour, step.record) != meta.uid(claim):
            raise NotStored(f"{step.record['spec']['address']} is held by {step.obstacle.holder} too")
        marked = await self.leases.mark(step.record)
        await self._pass_over(claim, step.record)
        if marked is not None:
            await self.leases.discard(marked)
        if going and not self.leases.knows(step.record):
            raise Conflict(409, f"{step.record['metadata']['name']} is gone; looking again")

    async def _pass_over(self, claim: Object, record: Object) -> None:
        text = f"{record['spec']['address']} was given back ({meta.uid(record)}); choosing another"
        refused = self.flavour.refused_status(claim, ADDRESS_TAKEN, text)
        change = patch.diff(claim.get("status") or {}, refused)
        if change is None:
            return  # it was said before, with this very object
        body = patch.guarded({"status": change}, claim)
        await self.informer.patch(claim, body, subresource="status")

    async def _tidy(self, claim: Object, record: Object, desk: Desk) -> None:
        """A claim has one address. What operators took for it before they saw that goes."""
        if record["metadata"]["name"] != self.flavour.bound_name(claim):
            return
        for other in self.leases.surplus(claim, record):
            await self.leases.collect(other)
        key = self.leases.key_of(claim)
        kept = {block_of(known) for known in self.leases.of_claim(claim)}
        for block in desk.space.leases_of(key):
            if block not in kept:
                desk.free(block, key)

    async def release(self, claim: Object) -> Outcome | None:
        await self.returns.withdraw(claim)
        self._forget(meta.ref(claim))
        return None

    async def gone(self, ref: Ref) -> Outcome:
        if not self.leases.kept.cache.filled:
            return After(FILLING_SECONDS)
        await self.returns.clean_up(ref)
        self._forget(ref)
        return DONE

    def _forget(self, ref: Ref) -> None:
        """Its address objects say all; what it had in memory only is free."""
        self.pools.forget(f"{ref.kind}/{ref.namespace}/{ref.name}")

    # Claims that name an object which is not there

    def names(self, address: Object) -> Object | None:
        """The living claim whose address this object is."""
        claim = self.cache.get(address["metadata"]["namespace"], self.flavour.claim_of_address(address))
        if claim is None or meta.is_deleting(claim) or not self.leases.is_for(address, claim):
            return None
        return claim if self.flavour.bound_name(claim) == address["metadata"]["name"] else None

    def is_named(self, address: Object) -> bool:
        """Does the claim it is for name it, living or going?"""
        claim = self.cache.get(address["metadata"]["namespace"], self.flavour.claim_of_address(address))
        if claim is None or self.flavour.bound_name(claim) != address["metadata"]["name"]:
            return False
        return self.leases.is_for(address, claim)

    def remember(self, claim: Object) -> None:
        """Before newcomers are served: what a claim names is its own, also where its object is gone."""
        if meta.is_deleting(claim) or not self.flavour.bound_name(claim):
            return
        open_pool, key = self.pools.get(self.flavour.pool_key(claim) or ""), self.leases.key_of(claim)
        if open_pool is None or open_pool.desk.space.leases_of(key):
            return
        if (lost := self._lost(claim, open_pool)) is not None:
            open_pool.desk.adopt(lost, key)

    async def catch_up(self, claim: Object) -> bool:
        """The claim names an object we do not know. True: now we do. Else the object has to be made again, if
        the claim is still there: both may have gone together, and we hear of one of them first."""
        if await self.leases.catch_up(claim):
            return True
        if self.flavour.bound_name(claim) and self.leases.named_by(claim) is None:
            await self._confirm(claim)
        if not self._is_from_elsewhere(claim):
            return False
        await self.leases.relearn(claim)
        return not self._is_from_elsewhere(claim)

    def _is_from_elsewhere(self, claim: Object) -> bool:
        """Held by our finalizer before it was ever answered, and we know nothing of it: it was moved here or
        restored, without its status, and its address may be news to us. It must not get another one."""
        if claim.get("status") or not meta.has_finalizer(claim, self.kind.finalizer):
            return False
        open_pool = self.pools.get(self.flavour.pool_key(claim) or "")
        return open_pool is not None and not open_pool.desk.space.leases_of(self.leases.key_of(claim))

    async def _confirm(self, claim: Object) -> None:
        found = await self.live(claim["metadata"]["namespace"], claim["metadata"]["name"])
        if found is None or meta.uid(found) != meta.uid(claim):
            self.cache.forget_deleted(claim)
        else:
            self.cache.put(found)
        if found is None or meta.resource_version(found) != meta.resource_version(claim):
            raise Conflict(409, f"{self.leases.key_of(claim)} changed meanwhile; looking again")

    async def live(self, namespace: str, name: str) -> Object | None:
        """A claim as it is stored now."""
        try:
            return await self._client.get(self.informer.in_use, name, namespace)
        except NotFound:
            return None

    def misses(self, claim: Object, address: Object) -> bool:
        """An address object for this claim has come, and is not the one its status names."""
        return (
            self.leases.is_for(address, claim)
            and self.flavour.bound_name(claim) != address["metadata"]["name"]
        )

    # What is reported

    def status(self, claim: Object, got: Sequence[Allocation], refused: Sequence[Refused]) -> Object:
        if got:
            return self.flavour.bound_status(claim, got[0].record)
        return self.flavour.refused_status(claim, refused[0].reason, refused[0].message)

    def explain(self, claim: Object, ask: Ask, refusal: Refusal) -> Refused:
        """Upstream's words, which clients match in the status; the Event has what they leave out."""
        text = refusal_message(refusal)
        event = text if refusal.reason is Reason.POOL_EXHAUSTED else f"{text}: {refusal.detail}"
        return Refused(str(refusal.reason), text, event, ask)
