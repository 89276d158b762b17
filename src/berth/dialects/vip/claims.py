"""What the claim reconciler asks about Services: when to serve, how to write the lease, what to report.

Whether a Service is ours is told by the finalizer and by the owner on IP objects, never by its status alone:
the API server empties that when the type changes, and others write there too.

A Service carries its addresses in an annotation too, written with the finalizer: one that comes back from a
backup, without status and perhaps before its IP objects, asks for what it had.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from berth import log
from berth.control.cache import Cache
from berth.control.informers import Informer
from berth.control.outcome import DONE, Outcome
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
from berth.dialects.pool import Desk
from berth.dialects.vip import kinds, messages
from berth.dialects.vip.leases import is_of
from berth.dialects.vip.migration_locks import Promises
from berth.dialects.vip.pools import Register, Shelf
from berth.dialects.vip.translate import (
    BadWish,
    Owner,
    block_of,
    families,
    ingress,
    is_load_balancer,
    is_of_class,
    owner,
    owner_of,
    pins,
    remembered,
    shown,
    takes_less,
    with_ingress,
)
from berth.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound
from berth.kube import meta, patch
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.leasing.decide import Refusal
from berth.leasing.model import Claim
from berth.net import Block, Family

Object = dict[str, Any]
KIND = "IPGroup"
LATE_SECONDS = 60.0  # after a Service went, what is written for it is an operator's last word, not a backup's
REMEMBERED = 20_000
AGAIN_SECONDS = 10.0  # after a write which the API server refused for good, as far as one can tell
_log = log.get("berth.vip")


def _changed() -> Conflict:
    return Conflict(409, "the Service changed meanwhile; looking again")


def _told(allocations: Sequence[Allocation]) -> str:
    parts = []
    for one in allocations:
        pool = one.desk.space.pool.name  # none where the pool it came from is gone
        parts.append(f"{one.block.address} from {pool}" if pool else one.block.address)
    return f"allocated {', '.join(parts)}"


class ServiceHandler:
    kind = ClaimKind("vip", kinds.SERVICE_FINALIZER, told=_told, not_stored=kinds.FAILED)
    promises: Promises

    def __init__(
        self, kept: Informer, register: Register, groups: Shelf, client: Client, classes: tuple[str, ...]
    ) -> None:
        self.informer = kept
        self._register = register
        self._groups = groups
        self._client = client
        self._classes = frozenset(classes)
        self._clock = time.monotonic
        self._left: dict[str, float] = {}  # when Services were seen to go, by UID
        self._foreign: dict[Ref, tuple[Block, ...]] = {}  # shown by Services that are not ours to serve

    @property
    def cache(self) -> Cache:
        return self.informer.cache

    # When

    async def plan(self, claim: Object) -> Plan:
        plan = self._planned(claim)
        if isinstance(plan, Serve) and await self._learns(claim):
            return Again()
        return plan

    def _planned(self, claim: Object) -> Plan:
        if meta.is_deleting(claim):
            return self._going(claim)
        if not is_load_balancer(claim):
            return self._other_type(claim)
        if not self._is_served_here(claim) or (ingress(claim) and not self.is_held(claim)):
            return Leave()
        return self._asking(claim)

    def concerns(self, service: Object) -> bool:
        """Is there anything about this Service that we could ever act on?"""
        return is_load_balancer(service) or self._has_traces(service)

    def is_held(self, service: Object) -> bool:
        """By our finalizer, or by an IP object that names it."""
        return meta.has_finalizer(service, self.kind.finalizer) or bool(self._records(service))

    def _has_traces(self, service: Object) -> bool:
        return self.is_held(service) or meta.condition(service, kinds.CONDITION) is not None

    def _is_served_here(self, service: Object) -> bool:
        return is_of_class(service, self._classes)

    def _going(self, service: Object) -> Plan:
        # Another controller's finalizer says that the address may still be in use.
        alone = meta.finalizers(service) in ([], [self.kind.finalizer])
        return Release() if alone and self.is_held(service) else Leave()

    def _other_type(self, service: Object) -> Plan:
        # Taken in memory counts too: the finalizer's write may have failed before the type changed.
        has_any = self._has_traces(service) or self._register.blocks_of(owner(service).key)
        return Release() if has_any and not self._is_migrating(service) else Leave()

    def _is_migrating(self, service: Object) -> bool:
        """Locked for a VirtualIP; or made again since, and what that one promised waits for it."""
        promised = self.promises.blocks(meta.ref(service))
        return self.promises.is_locked(service) or bool(promised & self._owned(service))

    def _asking(self, service: Object) -> Plan:
        key = owner(service).key
        try:
            pinned = pins(service)
        except BadWish as wish:
            return Wait(kinds.FAILED, str(wish))
        if self._is_settled(service, key, pinned):
            return Leave()
        asks = tuple(self._ask(service, key, family, pinned.get(family)) for family in families(service))
        # What it has it does not lose for want of the other family.
        partly = takes_less(service) or bool(self._register.blocks_of(key))
        return Serve(asks, partly)

    def _is_settled(self, service: Object, key: str, pinned: Mapping[Family, Block]) -> bool:
        """It shows what it owns, which is what it asks for: the second pass after serving it ends here."""
        blocks = shown(service)
        return (
            meta.has_finalizer(service, self.kind.finalizer)
            and tuple(block.family for block in blocks) == families(service)
            and all(block in blocks for block in pinned.values())
            and set(blocks) == set(self._register.blocks_of(key))
            and all(is_of(record, owner(service)) for record in self._records(service))
            and len(self._records(service)) == len(blocks)
            and meta.condition(service, kinds.CONDITION) is None
        )

    def _ask(self, service: Object, key: str, family: Family, pin: Block | None) -> Ask:
        desks = (*self._groups.desks(family), self._register.elsewhere)
        wanted = pin or self._confirmed(service, family) or self._had(service, key, family, desks)
        return Ask(Claim(key, family=family, pin=wanted), desks)

    def _had(self, service: Object, key: str, family: Family, desks: tuple[Desk, ...]) -> Block | None:
        """What it had before a backup brought it back, where that is free; it insists on nothing."""
        if any(block.family is family for block in self._register.blocks_of(key)):
            return None
        found = [block for block in remembered(service) if block.family is family]
        return next((one for one in found if any(desk.space.is_free(one) for desk in desks)), None)

    def _confirmed(self, service: Object, family: Family) -> Block | None:
        """The address it shows and owns; where a crash of another operator left it two, this is the one."""
        owned = self._owned(service)
        return next((block for block in shown(service) if block.family is family and block in owned), None)

    def _owned(self, service: Object) -> set[Block | None]:
        return {block_of(record) for record in self._records(service)}

    def _records(self, service: Object) -> list[Object]:
        return self._register.ledger.of_holder(owner(service).key)

    # What its status says about addresses which the ledger does not know

    def remember(self, service: Object) -> None:
        """An address in a status is taken, ledger or not: ours is written down again, others' is theirs."""
        ref = meta.ref(service)
        if not ingress(service) and ref not in self._foreign:
            return
        unknown = [block for block in self._visible(service) if self._register.ledger.get(block) is None]
        mine = [block for block in unknown if self._is_to_be_mended(service, block)]
        for block in mine:
            self._register.adopt(block, owner(service).key)
        foreign = tuple(block for block in unknown if block not in mine)
        self._replace_foreign(ref, foreign)

    def _visible(self, service: Object) -> tuple[Block, ...]:
        """Ours gives its address back while it goes; another's has it until it is gone."""
        is_leaving = meta.is_deleting(service) and meta.has_finalizer(service, self.kind.finalizer)
        return shown(service) if is_load_balancer(service) and not is_leaving else ()

    def _is_to_be_mended(self, service: Object, block: Block) -> bool:
        if not meta.has_finalizer(service, self.kind.finalizer) or not self._is_served_here(service):
            return False
        held = self._register.blocks_of(owner(service).key)
        return block in held or not any(other.family is block.family for other in held)

    async def _learns(self, claim: Object) -> bool:
        """It shows an address which, as far as we know, it does not have: did a second operator give it?

        Watches of two kinds do not keep step. We may know no IP object of that address yet, or still the one
        of who had it before.
        """
        if not meta.has_finalizer(claim, self.kind.finalizer):
            return False
        owned = self._owned(claim)  # what memory thinks it has is not enough
        unsure = [block for block in shown(claim) if block not in owned]
        return any([await self._is_given(block, claim) for block in unsure])

    async def _is_given(self, block: Block, claim: Object) -> bool:
        record = await self._register.ledger.find(block)
        return record is not None and is_of(record, owner(claim))

    def _replace_foreign(self, ref: Ref, blocks: tuple[Block, ...]) -> None:
        key = f"Ingress/{ref.namespace}/{ref.name}"
        before = self._foreign.pop(ref, ())
        if blocks:
            self._foreign[ref] = blocks
        for block in blocks:
            self._register.adopt(block, key)
        for block in before:
            if block not in blocks:
                self._register.free(block, key)

    def shows(self, service: Object, block: Block) -> bool:
        """Alive, ours, and its status has the address."""
        return self._is_to_be_mended(service, block) and block in self._visible(service)

    # How

    def marks(self, claim: Object, blocks: tuple[Block, ...]) -> list[patch.Operation]:
        chosen = ",".join(block.address for block in blocks)
        return patch.set_annotation(claim, kinds.HAD_ADDRESS, chosen or None)

    async def write(self, claim: Object, desk: Desk, block: Block) -> Object:
        group = desk.space.pool.name or self._groups.covering(block) or ""
        try:
            return await self._register.ledger.commit(owner(claim), block, kinds.GROUP_LABEL, group)
        except (Invalid, BadRequest, Forbidden) as error:
            text = f"failed to allocate any ip: an error occurred while allocating IP: {error}"
            raise NotStored(text, keeps=bool(ingress(claim)), seconds=AGAIN_SECONDS) from error

    async def release(self, claim: Object) -> Outcome | None:
        records = await self._register.records_of(owner(claim))  # none that is made after the look below
        if not meta.is_deleting(claim):
            await self._look_twice(claim)
        await self._give_back(claim, records)
        self._forget(meta.ref(claim))
        return None

    async def _look_twice(self, claim: Object) -> None:
        """It is no LoadBalancer, as far as we know: it may be one again, or a migration may have begun."""
        live = await self._live(claim)
        if live is not None and (is_load_balancer(live) or await self.promises.is_locked_now(live)):
            raise _changed()

    async def trim(self, claim: Object, keep: tuple[Block, ...]) -> None:
        if self._is_migrating(claim):
            return  # one of them is still served by the VirtualIP's clone
        records = await self._register.records_of(owner(claim), keep)
        if records:
            await self._look_again(claim)
        await self._give_back(claim, records)

    async def _look_again(self, claim: Object) -> None:
        """What was decided about an earlier state of it gives nothing back: it may show that by now."""
        live = await self._live(claim)
        if live is not None and meta.resource_version(live) != meta.resource_version(claim):
            raise _changed()

    async def _live(self, claim: Object) -> Object | None:
        """None: gone. Raises Conflict if there is another one of that name."""
        try:
            live = await self._client.get(kinds.SERVICE, claim["metadata"]["name"], owner(claim).namespace)
        except NotFound:
            return None
        self.cache.put(live)
        if meta.uid(live) != meta.uid(claim):
            raise _changed()
        return live

    async def _give_back(self, claim: Object, records: Iterable[Object]) -> None:
        for record in records:
            await self._discard(meta.ref(claim), record)
        await self.clean_up(meta.ref(claim), meta.uid(claim))

    async def clean_up(self, ref: Ref, alive: str = "") -> None:
        """What was written for a Service of this name that is gone goes too; `alive` is the one there is.

        A deletion that was under way when our finalizer was stored can win, and the last write of an operator
        that was killed can come after the release. A UID never comes back, so one live read is enough. Of a
        Service that we did not see go just now it may be what a backup brings back before the Service: that
        is left to the janitor, who has patience.
        """
        for record in self._register.ledger.of_holder(Owner(*ref).key):
            uid = (owner_of(record) or Owner(*ref)).uid
            is_late = bool(alive) or self._has_just_gone(uid)
            if uid not in ("", alive) and is_late and not await self._lives(ref, uid):
                _log.info("the Service is gone, its address goes too", ip=record["metadata"]["name"])
                await self._discard(ref, record)

    def left(self, uid: str) -> None:
        """A Service was seen to go."""
        self._left[uid] = self._clock()
        while len(self._left) > REMEMBERED:
            self._left.pop(next(iter(self._left)))

    def _has_just_gone(self, uid: str) -> bool:
        return self._clock() - self._left.get(uid, -math.inf) < LATE_SECONDS

    async def _discard(self, ref: Ref, record: Object) -> None:
        """Unless a clone still serves the address: the end of that migration wakes the Service again."""
        block = block_of(record)
        if block is not None and await self.promises.is_promised(ref, block):
            _log.info("a clone serves the address, so it stays", ip=record["metadata"]["name"])
        else:
            await self._register.ledger.discard(record)

    async def _lives(self, ref: Ref, uid: str) -> bool:
        try:
            return meta.uid(await self._client.get(kinds.SERVICE, ref.name, ref.namespace)) == uid
        except NotFound:
            return False

    async def gone(self, ref: Ref) -> Outcome:
        await self.clean_up(ref)
        self._forget(ref)
        return DONE

    def _forget(self, ref: Ref) -> None:
        self._replace_foreign(ref, ())
        self._register.forget(ref, Owner(*ref).key)

    # What is reported

    def holds(self, claim: Object) -> tuple[Block, ...]:
        return self._register.blocks_of(owner(claim).key)

    def explain(self, claim: Object, ask: Ask, refusal: Refusal) -> Refused:
        return Refused(kinds.FAILED, messages.refusal(self._groups, KIND, ask.claim), ask=ask)

    def status(self, claim: Object, got: Sequence[Allocation], refused: Sequence[Refused]) -> Object:
        status = with_ingress(claim, tuple(one.block for one in got))
        conditions = status.get("conditions") or []
        if refused:
            why = "; ".join(dict.fromkeys(one.message for one in refused))
            waiting = {
                "type": kinds.CONDITION,
                "status": "False",
                "reason": refused[0].reason,
                "message": why,
            }
            status["conditions"] = meta.with_condition(conditions, waiting, datetime.now(UTC))
        else:
            status["conditions"] = meta.without_condition(conditions, kinds.CONDITION) or None
        return status
