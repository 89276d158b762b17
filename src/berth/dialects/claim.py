"""A claim's life, the same in every dialect: hold → decide → commit → report, and in the end release.

    stance      what the object asks for now: leave it, let it wait, serve it, release it        pure, dialect
    hold        our finalizer is stored before anything is taken for it
    decide      leasing.decide over the candidate spaces                                         pure, shared
    commit      the dialect's ledger writes the lease; Taken means: decide again
    report      one status patch, only if something differs; an Event says why when it changed
    release     the ledger withdraws what the claim holds, then our finalizer goes

Nothing here knows a kind; `ClaimBook` is what a dialect fills in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from berth import log
from berth.control.cache import Cache
from berth.control.events import Recorder
from berth.control.finalizers import remove_finalizer
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.pool import Desk
from berth.errors import NotFound, Taken
from berth.kube import meta, patch
from berth.kube.client import Client, PatchKind
from berth.kube.meta import Object, Ref
from berth.kube.resource import Resource
from berth.leasing.decide import Grant, Refusal, decide
from berth.leasing.model import Claim
from berth.leasing.space import UNKNOWN_HOLDER
from berth.metrics import Metrics
from berth.net import Block

_log = log.get("berth.claim")
TRIES = 16  # how often one pass looks for another block after losing one; then it comes back later


@dataclass(frozen=True, slots=True)
class Leave:
    """Not ours, paused, or nothing to do."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It cannot be decided now. What it waits for wakes it; `seconds` is for what no watch tells."""

    reason: str
    message: str
    stamp: bool = False  # written into the status, not only said in an Event
    seconds: float | None = None
    detail: str = ""  # more for people, in the Event: the status may be read by machines


@dataclass(frozen=True, slots=True)
class Serve:
    claim: Claim
    desks: tuple[Desk, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """It is going, or asks for nothing any more: give back what it holds and let it go."""


Stance = Leave | Wait | Serve | Release


@dataclass(frozen=True, slots=True)
class Bound:
    """A lease as the ledger holds it: the block, the desk it came from, and the object that records it."""

    block: Block
    desk: Desk
    record: Object


class NotStored(Exception):
    """The ledger can never store this lease as it is; the claim says so, and others go on."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Vanished(Exception):
    """The claim was gone before we could write to it: whatever it asked for, nobody asks any more."""


class ClaimBook(Protocol):
    """What a dialect says about its claims."""

    dialect: str
    announces: bool  # an Event for every lease; without, only for those that had to wait
    finalizer: str
    guard_status: bool  # the status has lists which others edit too: refuse to write over a newer one

    @property
    def resource(self) -> Resource: ...
    @property
    def cache(self) -> Cache: ...

    def stance(self, claim: Object) -> Stance: ...
    async def commit(self, claim: Object, desk: Desk, block: Block) -> Object: ...
    async def withdraw(self, claim: Object) -> bool: ...
    def forget(self, ref: Ref) -> None: ...
    def bound_status(self, claim: Object, bound: Bound) -> Object: ...
    def refused_status(self, claim: Object, refusal: Refusal | Wait) -> Object: ...
    def message(self, refusal: Refusal) -> str: ...


class ClaimLife:
    def __init__(self, book: ClaimBook, client: Client, events: Recorder, metrics: Metrics) -> None:
        self._book = book
        self._client = client
        self._events = events
        self._metrics = metrics
        self._said: dict[Ref, str] = {}  # the last reason given in an Event, so that waiting is said once
        self._in_line: dict[Ref, tuple[Desk, ...]] = {}  # where a refused claim waits
        self._pending: dict[Ref, tuple[Desk, Block, str]] = {}  # taken in memory, not known to be stored

    async def reconcile(self, ref: Ref) -> Outcome:
        claim = self._book.cache.get(ref.namespace, ref.name)
        if claim is None:
            return self._forget(ref)
        stance = self._book.stance(claim)
        if not isinstance(stance, Serve):
            self._step_out(ref)
        try:
            match stance:
                case Leave():
                    return DONE
                case Release():
                    return await self._release(claim)
                case Wait() as wait:
                    return await self._wait(claim, ref, wait)
                case Serve() as serve:
                    return await self._serve(claim, ref, serve)
        except Vanished:
            return self._forget(ref)

    def _forget(self, ref: Ref) -> Outcome:
        self._said.pop(ref, None)
        self._step_out(ref)
        self._give_up(ref, None)
        self._book.forget(ref)
        return DONE

    def _step_out(self, ref: Ref) -> None:
        """Whoever cannot be served now must not stand before those who can."""
        for desk in self._in_line.pop(ref, ()):
            desk.leave(ref)

    async def _serve(self, claim: Object, ref: Ref, serve: Serve) -> Outcome:
        # Taken in memory before the first await: claims get their addresses in the order of the queue.
        granted = self._reserve(ref, serve)
        claim = await self._hold(claim)
        try:
            won = await self._win(claim, ref, serve, serve.claim)
        except NotStored as error:
            wait = Wait("NotStored", str(error), stamp=True, seconds=60.0, detail=error.detail)
            return await self._wait(claim, ref, wait)
        match won:
            case Refusal() as refusal:
                return await self._refuse(claim, ref, serve, refusal)
            case Bound() as bound:
                if bound.block == granted:
                    self._metrics.decided(self._book.dialect, "grant")
                await self._report_bound(claim, ref, bound)
                return DONE
        return After(1.0)

    def _reserve(self, ref: Ref, serve: Serve) -> Block | None:
        decision = decide(serve.claim, [desk.space for desk in serve.desks])
        self._give_up(ref, None if isinstance(decision, Refusal) else decision.block)
        if not isinstance(decision, Grant):
            return None
        self._take(ref, serve, decision)
        self._leave_lines(ref, serve)  # whoever is next need not wait for a write of ours
        return decision.block

    def _leave_lines(self, ref: Ref, serve: Serve) -> None:
        self._in_line.pop(ref, None)
        for desk in serve.desks:
            desk.leave(ref)

    def _give_up(self, ref: Ref, but: Block | None) -> None:
        """What an earlier pass took for a wish that is another one by now is nobody's."""
        pending = self._pending.get(ref)
        if pending is not None and pending[1] != but:
            desk, block, holder = self._pending.pop(ref)
            desk.free(block, holder)

    def _take(self, ref: Ref, serve: Serve, grant: Grant) -> None:
        grant.take()
        desk = next(desk for desk in serve.desks if desk.space is grant.space)
        self._pending[ref] = (desk, grant.block, grant.holder)

    async def _win(self, claim: Object, ref: Ref, serve: Serve, wish: Claim) -> Bound | Refusal | None:
        """Decide and commit, again if someone was faster; None: lost too often for one pass."""
        for _ in range(TRIES):
            decision = decide(wish, [desk.space for desk in serve.desks])
            if isinstance(decision, Refusal):
                return decision
            desk = next(desk for desk in serve.desks if desk.space is decision.space)
            if isinstance(decision, Grant):
                self._take(ref, serve, decision)
            self._leave_lines(ref, serve)
            try:
                record = await self._book.commit(claim, desk, decision.block)
            except Taken as taken:
                self._pending.pop(ref, None)
                self._lost(desk, decision.block, wish.holder, taken)
                continue
            except NotStored:
                self._pending.pop(ref, None)
                desk.free(decision.block, wish.holder)
                raise
            self._pending.pop(ref, None)
            if isinstance(decision, Grant):
                self._metrics.decided(self._book.dialect, "grant")
            return Bound(decision.block, desk, record)
        return None

    async def _hold(self, claim: Object) -> Object:
        steps = [*(patch.add_finalizer(claim, self._book.finalizer) or ()), *self._marks(claim)]
        if not steps:
            return claim
        namespace, name = claim["metadata"].get("namespace", ""), claim["metadata"]["name"]
        try:
            held = await self._client.patch(self._book.resource, name, steps, namespace, kind=PatchKind.JSON)
        except NotFound as error:
            self._book.cache.forget_deleted(claim)
            raise Vanished from error
        self._book.cache.put(held)
        return held

    def _marks(self, claim: Object) -> list[patch.Operation]:
        """What else is written with the finalizer: the blocks are taken in memory by then."""
        return []

    def _lost(self, desk: Desk, block: Block, holder: str, taken: Taken) -> None:
        """Someone else has it: remember whose it is, so that the next decision goes around it."""
        _log.info("address was taken meanwhile", block=str(block), holder=taken.holder)
        desk.space.release(block, holder)
        desk.adopt(block, taken.holder or UNKNOWN_HOLDER)

    async def _report_bound(self, claim: Object, ref: Ref, bound: Bound) -> None:
        written = await self._write_status(claim, self._book.bound_status(claim, bound))
        if self._said.pop(ref, None) is not None or (written and self._book.announces):
            what = bound.block.address if bound.block.is_address else str(bound.block)
            text = f"{what} allocated from {bound.desk.space.pool.name}"
            self._events.event(claim, "Normal", "AddressAllocated", text)

    async def _refuse(self, claim: Object, ref: Ref, serve: Serve, refusal: Refusal) -> Outcome:
        self._in_line[ref] = serve.desks
        for desk in serve.desks:
            pin = serve.claim.pin or desk.space.pool.reservations.get(serve.claim.name)
            desk.wait(claim, ref, pin, serve.claim.length)
        await self._write_status(claim, self._book.refused_status(claim, refusal))
        self._say(claim, ref, str(refusal.reason), self._book.message(refusal))
        self._metrics.decided(self._book.dialect, "refusal", str(refusal.reason))
        return DONE

    async def _wait(self, claim: Object, ref: Ref, wait: Wait) -> Outcome:
        if wait.stamp:
            await self._write_status(claim, self._book.refused_status(claim, wait))
        said = f"{wait.message}: {wait.detail}" if wait.detail else wait.message
        self._say(claim, ref, wait.reason, said)
        return DONE if wait.seconds is None else After(wait.seconds)

    async def _release(self, claim: Object) -> Outcome:
        """Withdraw first, let go last; what is already gone counts as done."""
        if not await self._book.withdraw(claim):
            return DONE  # the ledger still waits for someone; its change wakes us
        self._pending.pop(meta.ref(claim), None)
        self._book.forget(meta.ref(claim))
        await self._let_go(claim)
        return DONE

    async def _let_go(self, claim: Object) -> None:
        await remove_finalizer(
            self._client, self._book.resource, self._book.cache, claim, self._book.finalizer
        )

    async def _write_status(self, claim: Object, desired: Object) -> bool:
        change = patch.diff(claim.get("status") or {}, desired)
        if change is None:
            return False
        namespace, name = claim["metadata"].get("namespace", ""), claim["metadata"]["name"]
        body = {"metadata": {"uid": meta.uid(claim)}, "status": change}
        if self._book.guard_status:
            body = patch.guarded(body, claim)
        try:
            written = await self._client.patch(
                self._book.resource, name, body, namespace, subresource="status"
            )
        except NotFound as error:
            self._book.cache.forget_deleted(claim)
            await self._book.withdraw(claim)  # it went although we held it: what we wrote for it goes too
            raise Vanished from error
        self._book.cache.put(written)
        return True

    def _say(self, claim: Object, ref: Ref, reason: str, message: str) -> None:
        if self._said.get(ref) != f"{reason} {message}":
            self._said[ref] = f"{reason} {message}"
            self._events.event(claim, "Warning", reason, message)
