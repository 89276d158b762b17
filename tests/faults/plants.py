"""Bugs planted in an operator's process, from the tests' side only.

Each is what a careless change might do to one rule of the product; `test_planted.py` shows that a row of the
bench catches it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from random import random
from typing import Any

from berth import log
from berth.control.informers import Informers
from berth.control.leader import Elector
from berth.control.outcome import DONE, Outcome
from berth.dialects.claim import ClaimReconciler, Plan, Release
from berth.dialects.kubipam.kinds import RANGE
from berth.dialects.metal3.claims import PoolClaimHandler
from berth.dialects.metal3.leases import IPAddressLedger
from berth.dialects.metal3.release import Returns
from berth.dialects.metal3.translate import PoolSpec, address_name
from berth.errors import Unreachable
from berth.kube import watch
from berth.kube.client import Client
from berth.kube.http.transport import Request
from berth.kube.meta import Ref
from berth.kube.resource import Resource
from berth.net import Block

Object = dict[str, Any]
PLANTS: dict[str, Callable[[], None]] = {}


def plant(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(change: Callable[[], None]) -> Callable[[], None]:
        PLANTS[name] = change
        return change

    return keep


def put(owner: object, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name} any more: nothing would be planted"
    setattr(owner, name, value)


# Bugs


@plant("no unique index")
def _any_name() -> None:
    """The lease's object is not named after its address, so storage refuses nothing."""

    def unique(self: PoolSpec, block: Block) -> str:
        return f"{self.name_prefix}-{uuid.uuid4().hex[:12]}"

    put(PoolSpec, "address_name", unique)


@plant("ipv6 as text")
def _two_spellings() -> None:
    """One address is spelled in two ways, and each spelling is a name of its own."""

    def spelled(self: PoolSpec, block: Block) -> str:
        groups = [f"{block.first >> shift & 0xFFFF:04x}" for shift in range(112, -1, -16)]
        return address_name(self.name_prefix, block.address if random() < 0.5 else ":".join(groups))

    put(PoolSpec, "address_name", spelled)


@plant("record overwritten")
def _overwrite() -> None:
    """A range's page is read, rebuilt and written back, whoever wrote it since."""
    original = Client.patch

    async def unguarded(
        self: Client, resource: Resource, name: str, body: Any, *rest: Any, **how: Any
    ) -> Object:
        if resource == RANGE:
            body = [step for step in body if step["op"] != "test"] if isinstance(body, list) else _free(body)
        return await original(self, resource, name, body, *rest, **how)

    put(Client, "patch", unguarded)


def _free(body: Mapping[str, Any]) -> Object:
    about = {key: value for key, value in body.get("metadata", {}).items() if key != "resourceVersion"}
    return {**body, "metadata": about}


@plant("no start barrier")
def _serve_at_once() -> None:
    """Work begins while the first lists are still on their way."""

    async def filled(self: Informers) -> None:
        return

    put(Informers, "filled", filled)


@plant("collected by name")
def _collect_by_name() -> None:
    """A claim of this name is gone: so is every address that was taken under the name."""

    async def clean_up(self: Returns, ref: Ref) -> None:
        for record in self._leases.kept.cache.by("holder", f"{ref.kind}/{ref.namespace}/{ref.name}"):
            await self._leases.collect(record)

    put(Returns, "clean_up", clean_up)


@plant("release in DELETE")
def _release_at_once() -> None:
    """Deletion was asked for: the address is free, whoever still holds the claim."""

    def going(self: PoolClaimHandler, claim: Object) -> Plan:
        return Release()

    put(PoolClaimHandler, "_going", going)


@plant("late finalizer")
def _hold_late() -> None:
    """The lease is written first, the claim held afterwards."""
    hold, report = ClaimReconciler._hold, ClaimReconciler._report

    async def later(self: ClaimReconciler, claim: Object, blocks: tuple[Block, ...]) -> Object:
        return claim

    async def then_hold(self: ClaimReconciler, claim: Object, ref: Ref, got: Any, refused: Any) -> Outcome:
        outcome = await report(self, claim, ref, got, refused)
        written = self._informer.cache.get(ref.namespace, ref.name) or claim
        await hold(self, written, tuple(one.block for one in got))
        return outcome

    put(ClaimReconciler, "_hold", later)
    put(ClaimReconciler, "_report", then_hold)


@plant("undo on timeout")
def _undo() -> None:
    """No answer to a create is taken for a failure, and undone by name."""
    create = IPAddressLedger._create

    async def and_undo(
        self: IPAddressLedger, claim: Object, pool: Object, spec: PoolSpec, block: Block
    ) -> Object:
        try:
            return await create(self, claim, pool, spec, block)
        except Unreachable:
            await _wipe(self, claim["metadata"]["namespace"], spec.address_name(block))
            raise

    put(IPAddressLedger, "_create", and_undo)


async def _wipe(leases: IPAddressLedger, namespace: str, name: str) -> None:
    change = {"metadata": {"finalizers": None}}
    await leases._client.patch(leases.resource, name, change, namespace)
    await leases._client.delete(leases.resource, name, namespace)


@plant("no relist")
def _never_list_again() -> None:
    """What the server no longer knows is asked for again and again."""

    def stay(self: watch.Reflector, why: str) -> None:
        return

    put(watch.Reflector, "_relist", stay)


@plant("no leader check")
def _always_leads() -> None:
    """Whoever led once goes on: no question before a write, none about the lease."""

    def allow(self: Elector) -> None:
        return

    async def renewed(self: Elector) -> bool:
        return True

    put(Elector, "guard", allow)
    put(Elector, "_renew", renewed)


@plant("body logged")
def _log_bodies() -> None:
    write = Client._write
    said = log.get("berth.kube.client")

    async def and_say(self: Client, request: Request) -> Object:
        said.info("written", what=str(request.body))
        answer: Object = await write(self, request)
        said.info("answered", what=str(answer))
        return answer

    put(Client, "_write", and_say)


@plant("errors are final")
def _give_up() -> None:
    """An error of one claim ends the work on it for good."""
    reconcile = ClaimReconciler.reconcile

    async def once(self: ClaimReconciler, ref: Ref) -> Outcome:
        try:
            return await reconcile(self, ref)
        except Exception:
            return DONE

    put(ClaimReconciler, "reconcile", once)
