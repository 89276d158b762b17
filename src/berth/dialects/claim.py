"""The life of any claim, told in one piece. A dialect says what it means for its objects (`ClaimHandler`).

    plan        what the object asks for now: leave it, look again, wait, serve it, release it       handler
    take        decide for each of its claims, in memory, before the first await                     leasing
    hold        our finalizer is stored before anything is written for it
    write       the lease; the ledger refuses a double: Taken means decide again                     handler
    report      one status patch, only if something differs; an Event when there is news
    release     what it holds is given back, then our finalizer goes                                 handler

An object asks for one block, or for several: a Service of two families is two claims of one holder. Either
all are served or none, unless the object takes less (`Serve.partly`).

Most objects are held while they wait. Where a `Surplus` is given they are not: who waits has nothing, and can
go at any time; and what an object holds beyond its wish goes after its status stopped showing it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, final

from berth import log
from berth.control.events import Recorder
from berth.control.informers import Informer
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.pool import Desk
from berth.errors import NotFound, Taken
from berth.kube import meta, patch
from berth.kube.client import PatchKind
from berth.kube.meta import Object, Ref
from berth.leasing.decide import Decision, Grant, Keep, Refusal, decide
from berth.leasing.model import Claim
from berth.leasing.space import UNKNOWN_HOLDER
from berth.metrics import Metrics
from berth.net import Block

_log = log.get("berth.claim")
TRIES = 16  # how often one pass looks for another block after losing one; then it comes back later
NOT_STORED = "NotStored"


# What a claim asks for now


@dataclass(frozen=True, slots=True)
class Leave:
    """Not ours, paused, or nothing to do."""


@dataclass(frozen=True, slots=True)
class Again:
    """Something was learnt, or is being listed: look again, with nothing decided."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Wait:
    """It cannot be decided now. What it waits for wakes it; `seconds` is for what no watch tells."""

    reason: str
    message: str
    detail: str = ""  # more for people, in the Event: the status may be read by machines
    seconds: float | None = None
    quietly: bool = False  # what it has stays, and so does its status: only an Event says why


@dataclass(frozen=True, slots=True)
class Ask:
    """One block, from the first of these pools that can give it."""

    claim: Claim
    desks: tuple[Desk, ...]

    def decide(self) -> Decision:
        return decide(self.claim, [desk.space for desk in self.desks])

    def desk_of(self, granted: Grant | Keep) -> Desk:
        return next(desk for desk in self.desks if desk.space is granted.space)


@dataclass(frozen=True, slots=True)
class Serve:
    asks: tuple[Ask, ...]
    partly: bool = False  # what can be served is served, and the rest waited for


@dataclass(frozen=True, slots=True)
class Release:
    """It is going, or asks for nothing any more: give back what it holds and let it go."""


Plan = Leave | Again | Wait | Serve | Release


# What became of it


@dataclass(frozen=True, slots=True)
class Allocation:
    """A block as the ledger holds it: the desk it came from, and the object that records it."""

    block: Block
    desk: Desk
    record: Object


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no block now. The reason is one word: in the condition, Event, metric and log."""

    reason: str
    message: str  # in the status
    event: str = ""  # in the Event and the log, where it says more than the status
    ask: Ask | None = None  # what was refused; None: it could not even be decided


class NotStored(Exception):
    """The ledger can never store this lease as it is; the claim says so, and others go on."""

    def __init__(self, message: str, detail: str = "", *, keeps: bool = False, seconds: float = 60.0) -> None:
        super().__init__(message)
        self.detail = detail
        self.keeps = keeps  # it has an address already, which stays
        self.seconds = seconds


class Vanished(Exception):
    """The claim was gone before we could write to it: whatever it asked for, nobody asks any more."""


def allocated_from(allocations: Sequence[Allocation]) -> str:
    return ", ".join(f"{shown(one.block)} allocated from {one.desk.space.pool.name}" for one in allocations)


def shown(block: Block) -> str:
    return block.address if block.is_address else str(block)


@dataclass(frozen=True, slots=True)
class ClaimKind:
    """What is the same for every claim of a kind."""

    dialect: str
    finalizer: str
    announces: bool = True  # an Event for every lease; without, only for those that had to wait
    told: Callable[[Sequence[Allocation]], str] = allocated_from  # that Event's sentence
    not_stored: str = NOT_STORED  # the reason word where the API server refuses to store a lease


class Surplus(Protocol):
    """For claims that wait with empty hands: what they hold beyond their wish, and how it goes."""

    def holds(self, claim: Object) -> tuple[Block, ...]: ...

    async def trim(self, claim: Object, keep: tuple[Block, ...]) -> None:
        """Give back what the claim holds beyond `keep`. Raises Conflict if it is no longer as it is here."""


class ClaimHandler(Protocol):
    """What a dialect says about its claims."""

    kind: ClaimKind
    informer: Informer

    async def plan(self, claim: Object) -> Plan:
        """What it asks for now. Whatever must be read live before that is decided is read here."""

    def marks(self, claim: Object, blocks: tuple[Block, ...]) -> list[patch.Operation]:
        """What is written with the finalizer; the blocks are taken in memory by then."""

    async def write(self, claim: Object, desk: Desk, block: Block) -> Object:
        """The record of the lease, made or found. Raises Taken (decide again) or NotStored."""

    async def release(self, claim: Object) -> Outcome | None:
        """Give back all it holds. None: done. An outcome: not yet, and when to come again."""

    def status(self, claim: Object, got: Sequence[Allocation], refused: Sequence[Refused]) -> Object:
        """Its whole status."""

    def explain(self, claim: Object, ask: Ask, refusal: Refusal) -> Refused:
        """A no, in the dialect's words."""

    async def gone(self, ref: Ref) -> Outcome:
        """It is gone: so is what was made for it, and what it had in memory only."""


@final
class ClaimReconciler:
    def __init__(
        self,
        handler: ClaimHandler,
        events: Recorder,
        metrics: Metrics,
        surplus: Surplus | None = None,
    ) -> None:
        self._handler = handler
        self._surplus = surplus
        self._kind = handler.kind
        self._informer = handler.informer
        self._events = events
        self._metrics = metrics
        self._said: dict[Ref, str] = {}  # what the last Event said, so that waiting is said once
        self._waits_at: dict[Ref, tuple[Desk, ...]] = {}
        # Taken in memory, not known to be stored.
        self._pending: dict[Ref, dict[Block, tuple[Desk, str]]] = {}

    async def reconcile(self, ref: Ref) -> Outcome:
        claim = self._informer.cache.get(ref.namespace, ref.name)
        if claim is None:
            return await self._gone(ref)
        plan = await self._handler.plan(claim)
        if not isinstance(plan, Serve | Again):
            self._step_out(ref)
        try:
            match plan:
                case Leave():
                    return DONE
                case Again(seconds):
                    return After(seconds)
                case Wait():
                    return await self._wait(claim, ref, plan)
                case Serve():
                    return await self._serve(claim, ref, plan)
                case Release():
                    return await self._release(claim, ref)
        except Vanished:
            return After(0.0)

    async def _serve(self, claim: Object, ref: Ref, serve: Serve) -> Outcome:
        # Taken in memory before the first await: claims get their addresses in the order of the queue.
        taken = self._take(ref, serve)
        if len(taken) < len(serve.asks) and self._surplus and not (serve.partly and taken):
            return await self._report(claim, ref, (), self._refusals(claim, serve))
        claim = await self._hold(claim, taken)
        try:
            won = [await self._win(claim, ref, ask) for ask in serve.asks]
        except NotStored as error:
            wait = Wait(self._kind.not_stored, str(error), error.detail, error.seconds, quietly=error.keeps)
            return await self._wait(claim, ref, wait)
        if None in won:
            return After(1.0)
        got = [one for one in won if isinstance(one, Allocation)]
        if len(got) == len(won):
            return await self._report(claim, ref, got, ())
        if self._surplus and not (serve.partly and got):
            return After(0.0)  # lost since we looked: everything anew
        # Asked again, with no await before it stands in line, so that nothing that came free is missed.
        refused = self._refusals(claim, serve)
        outcome = await self._report(claim, ref, got, refused)
        return outcome if len(got) + len(refused) == len(won) else After(0.0)

    def _take(self, ref: Ref, serve: Serve) -> tuple[Block, ...]:
        """All that is free for it now; or nothing, if it must be all. What an earlier pass took for a wish
        that is another one by now is nobody's."""
        decisions = [ask.decide() for ask in serve.asks]
        blocks = tuple(one.block for one in decisions if not isinstance(one, Refusal))
        self._give_up(ref, blocks)
        if not blocks or (len(blocks) < len(decisions) and not serve.partly):
            return ()
        for ask, decision in zip(serve.asks, decisions, strict=True):
            if isinstance(decision, Grant):
                self._grant(ref, ask, decision)
        self._step_out(ref)  # whoever is next need not wait for a write of ours
        return blocks

    def _grant(self, ref: Ref, ask: Ask, grant: Grant) -> None:
        grant.take()
        self._pending.setdefault(ref, {})[grant.block] = (ask.desk_of(grant), grant.holder)

    def _give_up(self, ref: Ref, but: tuple[Block, ...] = ()) -> None:
        """Where there is a surplus it goes with that: after the status stopped showing it."""
        pending = self._pending.get(ref, {})
        for block in [block for block in pending if block not in but]:
            desk, holder = pending.pop(block)
            if self._surplus is None:
                desk.free(block, holder)

    async def _hold(self, claim: Object, blocks: tuple[Block, ...]) -> Object:
        adding = patch.add_finalizer(claim, self._kind.finalizer) or ()
        steps = [*adding, *self._handler.marks(claim, blocks)]
        if not steps:
            return claim
        try:
            return await self._informer.patch(claim, steps, kind=PatchKind.JSON)
        except NotFound as error:
            raise Vanished from error

    async def _win(self, claim: Object, ref: Ref, ask: Ask) -> Allocation | Refusal | None:
        """Decide and write, again if someone was faster; None: lost too often for one pass."""
        for _ in range(TRIES):
            decision = ask.decide()
            if isinstance(decision, Refusal):
                return decision
            block, desk = decision.block, ask.desk_of(decision)
            if isinstance(decision, Grant):
                self._grant(ref, ask, decision)
            self._step_out(ref)
            pending = self._pending.get(ref, {})
            try:
                record = await self._handler.write(claim, desk, block)
            except Taken as taken:
                # Remembered as whose it is, so that the next decision goes around it.
                _log.info("address was taken meanwhile", block=str(block), holder=taken.holder)
                pending.pop(block, None)
                desk.space.release(block, ask.claim.holder)
                desk.adopt(block, taken.holder or UNKNOWN_HOLDER)
                continue
            except NotStored:
                pending.pop(block, None)
                desk.free(block, ask.claim.holder)
                raise
            if pending.pop(block, None) is not None:
                self._metrics.decided(self._kind.dialect, "grant")
            return Allocation(block, desk, record)
        return None

    def _refusals(self, claim: Object, serve: Serve) -> tuple[Refused, ...]:
        decisions = ((ask, ask.decide()) for ask in serve.asks)
        return tuple(
            self._handler.explain(claim, ask, decision)
            for ask, decision in decisions
            if isinstance(decision, Refusal)
        )

    async def _wait(self, claim: Object, ref: Ref, wait: Wait) -> Outcome:
        event = f"{wait.message}: {wait.detail}" if wait.detail else wait.message
        refused = Refused(wait.reason, wait.message, event)
        if wait.quietly:
            self._say(claim, ref, (refused,))
            outcome: Outcome = DONE
        else:
            outcome = await self._report(claim, ref, (), (refused,))
        return outcome if wait.seconds is None else After(wait.seconds)

    async def _report(
        self, claim: Object, ref: Ref, got: Sequence[Allocation], refused: Sequence[Refused]
    ) -> Outcome:
        """Stand in line for what is missing, write the status, give back what is held beyond, tell it."""
        surplus = self._surplus
        had = surplus.holds(claim) if surplus else ()  # nothing was awaited since the decision
        self._line_up(claim, ref, refused)
        written = await self._write_status(claim, self._handler.status(claim, got, refused))
        if surplus is not None:
            if not got and set(surplus.holds(claim)) - set(had):
                return After(0.0)  # another operator is serving it: what that one took is not ours to give
            await surplus.trim(written or claim, tuple(one.block for one in got))
            if not got:
                await self._informer.remove_finalizer(written or claim, self._kind.finalizer)
        if refused:
            self._say(claim, ref, refused)
        elif self._said.pop(ref, None) is not None or (written and self._kind.announces):
            self._events.event(claim, "Normal", "AddressAllocated", self._kind.told(got))
        return DONE

    def _say(self, claim: Object, ref: Ref, refused: Sequence[Refused]) -> None:
        reason = refused[0].reason
        text = "; ".join(dict.fromkeys(one.event or one.message for one in refused))
        if self._said.get(ref) != f"{reason} {text}":
            self._said[ref] = f"{reason} {text}"
            self._events.event(claim, "Warning", reason, text)
            _log.info("claim waits", dialect=self._kind.dialect, reason=reason, cause=text)
        for one in refused:
            self._metrics.decided(self._kind.dialect, "refusal", one.reason)

    def _line_up(self, claim: Object, ref: Ref, refused: Sequence[Refused]) -> None:
        asks = [one.ask for one in refused if one.ask is not None]
        desks = tuple(desk for ask in asks for desk in ask.desks)
        for desk in self._waits_at.pop(ref, ()):
            if desk not in desks:
                desk.leave(ref)
        if desks:
            self._waits_at[ref] = desks
        for ask in asks:
            for desk in ask.desks:
                pin = ask.claim.pin or desk.space.pool.reservations.get(ask.claim.name)
                desk.wait(claim, ref, pin, ask.claim.length)

    def _step_out(self, ref: Ref) -> None:
        """Whoever is served, or cannot be now, must not stand before those who can."""
        for desk in self._waits_at.pop(ref, ()):
            desk.leave(ref)

    async def _release(self, claim: Object, ref: Ref) -> Outcome:
        """What it shows goes first, our finalizer last; what is already gone counts as done."""
        if self._surplus is not None and not meta.is_deleting(claim):
            await self._write_status(claim, self._handler.status(claim, (), ()))
        not_yet = await self._handler.release(claim)
        if not_yet is not None:
            return not_yet
        self._pending.pop(ref, None)
        await self._informer.remove_finalizer(claim, self._kind.finalizer)
        return DONE

    async def _gone(self, ref: Ref) -> Outcome:
        outcome = await self._handler.gone(ref)
        if outcome == DONE:
            self._said.pop(ref, None)
            self._step_out(ref)
            for block, (desk, holder) in self._pending.pop(ref, {}).items():
                desk.free(block, holder)
        return outcome

    async def _write_status(self, claim: Object, desired: Object) -> Object | None:
        """The claim as stored, None where nothing differs. Never over a newer one than was looked at: two
        operators must not both say which address is the claim's."""
        change = patch.diff(claim.get("status") or {}, desired)
        if change is None:
            return None
        body = patch.guarded({"metadata": {"uid": meta.uid(claim)}, "status": change}, claim)
        try:
            return await self._informer.patch(claim, body, subresource="status")
        except NotFound as error:
            await self._handler.release(claim)  # it went although we held it: what we wrote for it goes too
            raise Vanished from error
