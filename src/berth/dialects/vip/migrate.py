"""From a VirtualIP to a Service of type LoadBalancer with the same address, stage by stage.

    preparing       the Service is locked for this VirtualIP: two of one Service cannot both go on
    reassociating   the IP object changes hands: the IPGroup's label, the Service as its owner
    cleaning up     the VirtualIP lets go of the IP object
    converting      the Service becomes a LoadBalancer that insists on the address
    assigning       the address is in its status; only now does the clone go
    Migrated        when all of that is seen to hold, and never otherwise

Each stage looks at what is there and does what is missing, so it can be repeated after any crash; what it
cannot do it says in the message, and the state stays. The clone goes last: kube-proxy learns of the new way
to the address before it forgets the old one, in the order of the two writes, so it is always served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

from berth import log
from berth.control.outcome import DONE, Outcome
from berth.dialects.vip import kinds, messages
from berth.dialects.vip.leases import IPLedger, is_of
from berth.dialects.vip.pools import Shelf
from berth.dialects.vip.translate import (
    BadWish,
    Owner,
    address_block,
    holder_of,
    ingress,
    is_load_balancer,
    owner,
    pins,
    shown,
    with_ingress,
)
from berth.dialects.vip.writes import Objects
from berth.errors import StatusError, Taken
from berth.kube import meta
from berth.net import Block

Object = dict[str, Any]
_log = log.get("berth.vip")
ALREADY = "service is already of type LoadBalancer, change service type to proceed with migration"
ONGOING = "VirtualIP is being migrated"
NOT_CONVERTED = "could not change service type to LoadBalancer"


class State(StrEnum):
    CREATING = "Creating IP object"
    EXPOSING = "Exposing service"
    VALID = "Valid"
    ERROR = "Error"
    PREPARING = "Migrating: preparing for migration"
    REASSOCIATING = "Migrating: reassociating IP object"
    CLEANING = "Migrating: cleaning up"
    CONVERTING = "Migrating: converting service"
    ASSIGNING = "Migrating: assigning original IP"
    MIGRATED = "Migrated"


STARTS = (State.VALID, State.ERROR, "Migrating")  # the last one is what the version of July 2022 wrote
STAGES = (State.PREPARING, State.REASSOCIATING, State.CLEANING, State.CONVERTING, State.ASSIGNING)


class Held(Exception):
    """The stage cannot be done now; the text says why."""


class MigrationLost(Held):
    """The IP object is not the Service's (any more): it changes hands once again."""


def state_of(vip: Object) -> str:
    return str((vip.get("status") or {}).get("state", ""))


def is_migrating(vip: Object) -> bool:
    """Annotated, and it has what is to be migrated; or done already, which is final."""
    if state_of(vip) == State.MIGRATED:
        return True
    status = vip.get("status") or {}
    ready = bool(status.get("ip") and status.get("service"))
    return kinds.MIGRATE in meta.annotations(vip) and ready and state_of(vip) in (*STARTS, *STAGES)


class Migration:
    def __init__(self, objects: Objects, ledger: IPLedger, groups: Shelf, classes: tuple[str, ...]) -> None:
        self._objects = objects
        self._ledger = ledger
        self._groups = groups
        self._classes = classes
        self._stages: dict[str, Callable[[Object], Awaitable[Object]]] = {
            State.PREPARING: self._prepare,
            State.REASSOCIATING: self._reassociate,
            State.CLEANING: self._clean,
            State.CONVERTING: self._convert,
            State.ASSIGNING: self._assign,
        }

    async def step(self, vip: Object) -> Outcome:
        """One stage; its status write starts the next."""
        state = state_of(vip)
        if state == State.MIGRATED:
            return DONE
        if state in STARTS:
            await self._objects.write_status(vip, {"state": State.PREPARING, "message": ONGOING})
            return DONE
        try:
            vip = await self._stages[state](vip)
            if state == State.ASSIGNING:
                await self._conclude(vip)
                return DONE
        except MigrationLost:
            await self._objects.write_status(vip, {"state": State.REASSOCIATING, "message": ONGOING})
            return DONE
        except Held as held:
            await self._objects.write_status(vip, {"message": str(held)})
            return DONE
        following = STAGES[STAGES.index(State(state)) + 1]
        await self._objects.write_status(vip, {"state": following, "message": ONGOING})
        return DONE

    # Stages

    async def _prepare(self, vip: Object) -> Object:
        service = await self._service(vip)
        if not self._is_mine(vip, service) and (is_load_balancer(service) or ingress(service)):
            raise Held(ALREADY)
        rival = meta.annotations(service).get(kinds.MIGRATING, "")
        if rival == vip["metadata"]["name"]:
            return vip
        if rival and self._is_rival(vip, rival):
            raise Held(ALREADY)
        await self._edit(service, {"metadata": {"annotations": {kinds.MIGRATING: vip["metadata"]["name"]}}})
        return vip

    async def _reassociate(self, vip: Object) -> Object:
        service, block = await self._service(vip), _block(vip)
        if is_load_balancer(service) and not _is_for(service, block):
            raise Held(ALREADY)  # changed while we waited here: it has, or may get, another address
        group = self._groups.covering(block)
        if group is None:
            raise Held(f"could not get IPGroup object of IP: {messages.not_found('IPGroup')}")
        record = await self._ledger.find(block)
        if record is None:
            await self._make(owner(service), block, group)
            return vip
        if holder_of(record) not in (owner(vip).key, owner(service).key):
            raise Held(f"could not get IP object: {block.address} is held by {holder_of(record)}")
        try:
            await self._ledger.hand_over(record, kinds.GROUP_LABEL, group, owner(service))
        except StatusError as error:
            raise _final(error, "could not update IP object") from error
        return vip

    async def _make(self, service: Owner, block: Block, group: str) -> None:
        """Someone deleted it by hand."""
        try:
            await self._ledger.commit(service, block, kinds.GROUP_LABEL, group)
        except Taken as taken:
            raise Held(f"could not get IP object: {taken}") from taken
        except StatusError as error:
            raise _final(error, "could not get IP object") from error

    async def _clean(self, vip: Object) -> Object:
        return await self._objects.remove_finalizer(vip, kinds.IP_FINALIZER)

    async def _convert(self, vip: Object) -> Object:
        service, block = await self._owning_service(vip), _block(vip)
        _check_wishes(service, block)
        if is_load_balancer(service) and _is_for(service, block):
            return vip
        spec: Object = {"type": "LoadBalancer", "loadBalancerIP": block.address}
        if "" not in self._classes and self._classes:
            spec["loadBalancerClass"] = self._classes[0]
        try:
            await self._edit(service, {"spec": spec})
        except StatusError as error:
            raise _final(error, NOT_CONVERTED) from error
        return vip

    async def _assign(self, vip: Object) -> Object:
        service, block = await self._owning_service(vip), _block(vip)
        if block not in shown(service):
            others = tuple(other for other in shown(service) if other.family is not block.family)
            status = {"loadBalancer": with_ingress(service, (block, *others))["loadBalancer"]}
            try:
                service = await self._edit(service, {"status": status}, "status")
            except StatusError as error:
                raise _final(error, "could not set service ingress IP in status") from error
        await self._reset(vip, service)
        await self._objects.delete_clone(vip)
        vip = await self._objects.remove_finalizer(vip, kinds.CLONE_FINALIZER)
        return await self._objects.remove_finalizer(vip, kinds.IP_FINALIZER)

    async def _reset(self, vip: Object, service: Object) -> None:
        """The wish was the migration's, unless the VirtualIP had it too; and the lock is no longer needed."""
        change: Object = {}
        keeps_wish = bool((vip.get("spec") or {}).get("ip"))
        if service["spec"].get("loadBalancerIP") == _block(vip).address and not keeps_wish:
            change["spec"] = {"loadBalancerIP": None}
        if self._is_locked(vip, service):
            change["metadata"] = {"annotations": {kinds.MIGRATING: None}}
        if not change:
            return
        try:
            await self._edit(service, change)
        except StatusError as error:
            raise _final(error, "could not reset the .spec.loadBalancerIP field in service") from error

    async def _conclude(self, vip: Object) -> None:
        """Only what is seen to hold is reported."""
        service, block = await self._owning_service(vip), _block(vip)
        if why := await self._missing(vip, service, block):
            await self._objects.write_status(vip, {"message": why})
            return
        done = {"state": State.MIGRATED, "message": "VirtualIP has been migrated"}
        await self._objects.write_status(vip, {**done, "keepalivedGroup": "", "gsm": "", "clonedService": ""})

    async def _missing(self, vip: Object, service: Object, block: Block) -> str:
        if not is_load_balancer(service):
            return "the service is no longer of type LoadBalancer"
        if block not in shown(service):
            return f"the service does not show {block.address} yet"
        if {kinds.IP_FINALIZER, kinds.CLONE_FINALIZER} & set(meta.finalizers(vip)):
            return "the VirtualIP still has finalizers of its own"
        return "the clone is still being deleted" if await self._objects.has_clone(vip) else ""

    # A VirtualIP that is deleted on the way

    async def is_past_return(self, vip: Object) -> bool:
        """The IP object belongs to the Service already, which is locked for or converted by us."""
        if state_of(vip) not in STAGES:
            return False
        try:
            service = await self._owning_service(vip)
        except Held:
            return False
        return self._is_locked(vip, service) or self._is_mine(vip, service)

    async def finish(self, vip: Object) -> Outcome:
        """Deleted on the way: the Service gets what it was promised before the VirtualIP goes."""
        try:
            await self._convert(vip)
            vip = await self._assign(vip)
        except Held as held:
            # It cannot be had. Unlocked, a Service that is no LoadBalancer gives its IP object back.
            _log.warning("migration was given up with its VirtualIP", cause=str(held))
            await self.unlock(vip)
            await self._objects.delete_clone(vip)
            vip = await self._objects.remove_finalizer(vip, kinds.CLONE_FINALIZER)
            await self._objects.remove_finalizer(vip, kinds.IP_FINALIZER)
        return DONE

    async def unlock(self, vip: Object) -> None:
        status = vip.get("status") or {}
        service = self._objects.service(vip["metadata"]["namespace"], status.get("service") or "")
        if service is not None and self._is_locked(vip, service):
            await self._edit(service, {"metadata": {"annotations": {kinds.MIGRATING: None}}})

    # What is there

    async def _service(self, vip: Object) -> Object:
        name = vip["status"]["service"]
        found = await self._objects.live_service(vip["metadata"]["namespace"], name)
        if found is None:
            raise Held(f'could not get the service to be exposed: services "{name}" not found')
        return found

    async def _owning_service(self, vip: Object) -> Object:
        service, block = await self._service(vip), _block(vip)
        record = await self._ledger.find(block)
        if record is None or not is_of(record, owner(service)):
            raise MigrationLost(f"the IP object of {block.address} is not the service's")
        return service

    async def _edit(self, service: Object, change: Object, subresource: str = "") -> Object:
        return await self._objects.patch_service(service, change, subresource)

    def _is_mine(self, vip: Object, service: Object) -> bool:
        """Converted by this migration: it has, or insists on, the address, and owns the IP object."""
        block = _block(vip)
        record = self._ledger.get(block)
        if record is None or holder_of(record) != owner(service).key:
            return self._is_locked(vip, service)
        return _is_for(service, block)

    def _is_locked(self, vip: Object, service: Object) -> bool:
        return meta.annotations(service).get(kinds.MIGRATING, "") == str(vip["metadata"]["name"])

    def _is_rival(self, vip: Object, name: str) -> bool:
        other = self._objects.vip(vip["metadata"]["namespace"], name)
        return other is not None and is_migrating(other) and state_of(other) != State.MIGRATED


def _is_for(service: Object, block: Block) -> bool:
    """It shows the address, or insists on it."""
    return block in shown(service) or bool(service["spec"].get("loadBalancerIP") == block.address)


def _check_wishes(service: Object, block: Block) -> None:
    """Converted, it would insist on the address; other wishes of its own must not forbid that."""
    spec = {**service["spec"], "loadBalancerIP": block.address}
    try:
        pins({**service, "spec": spec})
    except BadWish as wish:
        raise Held(f"{NOT_CONVERTED}: {wish}") from wish


def _final(error: StatusError, what: str) -> Exception:
    """Transient trouble is tried again as it is; a refusal is told in the message."""
    return error if error.transient else Held(f"{what}: {error}")


def _block(vip: Object) -> Block:
    return address_block(vip["status"]["ip"])
