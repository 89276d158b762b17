"""A VirtualIP's life: an address from a GroupSegmentMapping, and a clone of its Service that exposes it.

    no address yet ──► the claim reconciler takes one ──► the clone of its Service ──► Valid
    annotation `virtualips.paas.org/migrate` ──► migrate.py
    deleted ──► clone, then IP object, then our finalizers

Upstream creates no new ones; those that are there are served until they are migrated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from berth.control.cache import Cache
from berth.control.informers import Informer
from berth.control.outcome import DONE, Outcome
from berth.dialects.claim import (
    Allocation,
    Ask,
    ClaimKind,
    ClaimReconciler,
    NotStored,
    Plan,
    Refused,
    Serve,
    Wait,
)
from berth.dialects.pool import Desk
from berth.dialects.vip import clone, kinds, messages
from berth.dialects.vip.leases import is_of
from berth.dialects.vip.migrate import Migration, State, is_migrating, state_of
from berth.dialects.vip.pools import Register, Shelf
from berth.dialects.vip.translate import NOT_PARSED, Owner, address_block, owner
from berth.dialects.vip.writes import Objects
from berth.errors import AlreadyExists, BadRequest, Forbidden, Invalid, InvalidText
from berth.kube import meta, patch
from berth.kube.meta import Ref
from berth.leasing.decide import Refusal
from berth.leasing.model import Claim
from berth.net import Block, Family

Object = dict[str, Any]
KIND = "GroupSegmentMapping"
NO_ADDRESS = "could not allocate an IP: "


class VirtualIPHandler:
    """What the claim reconciler asks about a VirtualIP that needs its address."""

    kind = ClaimKind("vip", kinds.IP_FINALIZER)

    def __init__(self, kept: Informer, register: Register, mappings: Shelf, objects: Cache) -> None:
        self.informer = kept
        self._register = register
        self._mappings = mappings
        self._objects = objects

    @property
    def cache(self) -> Cache:
        return self.informer.cache

    def needs_address(self, vip: Object) -> bool:
        block = address_of(vip)
        if block is None or not meta.has_finalizer(vip, self.kind.finalizer):
            return True
        record = self._register.ledger.get(block)
        return record is None or not is_of(record, owner(vip))

    def shows(self, vip: Object, block: Block) -> bool:
        done = state_of(vip) == State.MIGRATED
        return not meta.is_deleting(vip) and not done and address_of(vip) == block

    def remember(self, vip: Object) -> None:
        """The address in its status is taken, even where its IP object is missing."""
        block = address_of(vip)
        if block is not None and self.shows(vip, block) and self._register.ledger.get(block) is None:
            self._register.adopt(block, owner(vip).key)

    async def plan(self, claim: Object) -> Plan:
        key = owner(claim).key
        try:
            pin = address_of(claim) or wanted(claim)
        except InvalidText:
            return Wait(kinds.FAILED, f"{NO_ADDRESS}{NOT_PARSED}")
        family = None if pin is not None else Family.V4
        desks = (*self._mappings.desks(family), self._register.elsewhere)
        return Serve((Ask(Claim(key, family=family, pin=pin), desks),))

    def marks(self, claim: Object, blocks: tuple[Block, ...]) -> list[patch.Operation]:
        return []

    async def write(self, claim: Object, desk: Desk, block: Block) -> Object:
        mapping = desk.space.pool.name or self._mappings.covering(block) or ""
        try:
            return await self._register.ledger.commit(owner(claim), block, kinds.MAPPING_LABEL, mapping)
        except (Invalid, BadRequest, Forbidden) as error:
            raise NotStored(f"{NO_ADDRESS}{error}") from error

    async def release(self, claim: Object) -> Outcome | None:
        await self._register.withdraw(owner(claim))
        self._register.forget(meta.ref(claim), owner(claim).key)
        return None

    async def gone(self, ref: Ref) -> Outcome:
        self._register.forget(ref, Owner(*ref).key)
        return DONE

    async def settle(self, vip: Object) -> None:
        """A second operator may have stored another address for it, which it does not show."""
        if (block := address_of(vip)) is not None:
            await self._register.withdraw(owner(vip), (block,))

    def status(self, claim: Object, got: Sequence[Allocation], refused: Sequence[Refused]) -> Object:
        status = dict(claim.get("status") or {})
        if refused:
            return status | {"state": State.ERROR, "message": refused[0].message}
        if address_of(claim) is not None:
            return status
        mapping = meta.labels(got[0].record).get(kinds.MAPPING_LABEL, "")
        found = self._objects.get("", mapping) or {}
        return status | {
            "ip": got[0].block.address,
            "gsm": mapping,
            "keepalivedGroup": (found.get("spec") or {}).get("keepalivedGroup", ""),
            "state": State.CREATING,
            "message": "creating IP object for the service",
        }

    def explain(self, claim: Object, ask: Ask, refusal: Refusal) -> Refused:
        """The status has upstream's text alone; in the Event stands who was asked too."""
        message, event = (NO_ADDRESS + self._told(claim, say) for say in (messages.literal, messages.refusal))
        return Refused(str(refusal.reason), message, event, ask)

    def _told(self, claim: Object, say: Callable[[Shelf, str, Claim], str]) -> str:
        pin = address_of(claim) or wanted(claim)
        return say(self._mappings, KIND, Claim("", family=None if pin else Family.V4, pin=pin))


class VirtualLife:
    def __init__(
        self, book: VirtualIPHandler, claims: ClaimReconciler, migration: Migration, objects: Objects
    ) -> None:
        self._book = book
        self._claims = claims
        self._migration = migration
        self._objects = objects

    async def reconcile(self, ref: Ref) -> Outcome:
        vip = self._book.cache.get(ref.namespace, ref.name)
        if vip is None:
            return await self._claims.reconcile(ref)
        if meta.is_deleting(vip):
            return await self._delete(vip)
        if is_migrating(vip):
            return await self._migration.step(vip)
        if self._book.needs_address(vip):
            return await self._claims.reconcile(ref)
        return await self._expose(vip)

    async def _expose(self, vip: Object) -> Outcome:
        await self._book.settle(vip)
        name = vip["spec"]["service"]
        if (vip.get("status") or {}).get("service") != name:
            told = {
                "service": name,
                "state": State.EXPOSING,
                "message": "exposing service with an external IP",
            }
            vip = await self._objects.write_status(vip, told)
        original = self._objects.service(vip["metadata"]["namespace"], name)
        if original is None:
            return await self._fail(
                vip, f'could not get the service to be exposed: services "{name}" not found'
            )
        vip = await self._objects.hold(vip, kinds.CLONE_FINALIZER)
        try:
            await self._ensure_clone(vip, original)
        except (Invalid, BadRequest, Forbidden, AlreadyExists) as error:
            return await self._fail(vip, f"could not expose the service: {error}")
        valid = {
            "state": State.VALID,
            "message": "successfully allocated an IP address",
            "clonedService": clone.clone_name(vip),
        }
        await self._objects.write_status(vip, valid)
        return DONE

    async def _ensure_clone(self, vip: Object, original: Object) -> None:
        present = self._objects.service(vip["metadata"]["namespace"], clone.clone_name(vip))
        if present is None:
            address = (vip.get("status") or {})["ip"]
            await self._objects.create_service(clone.new_clone(vip, original, address))
        elif not clone.is_clone_of(present, vip):
            raise AlreadyExists(
                409, f'services "{clone.clone_name(vip)}" already exists and is not its clone'
            )
        elif (change := clone.follow(present, original)) is not None:
            await self._objects.patch_service(present, change)

    async def _fail(self, vip: Object, message: str) -> Outcome:
        await self._objects.write_status(vip, {"state": State.ERROR, "message": message})
        return DONE

    async def _delete(self, vip: Object) -> Outcome:
        """What the Service was promised it gets; the rest goes: clone, IP object, finalizers."""
        if await self._migration.is_past_return(vip):
            return await self._migration.finish(vip)
        if meta.has_finalizer(vip, kinds.CLONE_FINALIZER):
            await self._objects.delete_clone(vip)
            vip = await self._objects.remove_finalizer(vip, kinds.CLONE_FINALIZER)
        if meta.has_finalizer(vip, kinds.IP_FINALIZER):
            await self._book.release(vip)
            await self._migration.unlock(vip)
            await self._objects.remove_finalizer(vip, kinds.IP_FINALIZER)
        return DONE


def address_of(vip: Object) -> Block | None:
    try:
        return address_block((vip.get("status") or {}).get("ip") or "")
    except InvalidText:
        return None


def wanted(vip: Object) -> Block | None:
    """Raises InvalidText."""
    text = (vip.get("spec") or {}).get("ip")
    return address_block(text) if text else None
