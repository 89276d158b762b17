"""A claim's life where one object asks for several blocks: a Service of two families is two claims.

    decide all ──► hold ──► commit each ──► report all ──► give back what is held beyond them

Either all are served or none, unless the object takes less. The finalizer is put on only when there is
something to take, so that an object which waits can go at any time; and what an object holds but no longer
asks for is given back after its status stopped showing it, never before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from berth.control.events import Recorder
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.claim import Bound, ClaimBook, ClaimLife, NotStored, Serve
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.meta import Object, Ref
from berth.leasing.decide import Decision, Grant, Refusal, decide
from berth.metrics import Metrics
from berth.net import Block

AGAIN_SECONDS = 10.0  # after a write which the API server refused for good, as far as one can tell


@dataclass(frozen=True, slots=True)
class Several(Serve):
    """Further claims of the same object, each with the desks it may be served at."""

    others: tuple[Serve, ...] = ()
    partly: bool = False  # what can be served is served, and the rest waited for
    fault: str = ""  # it asks for what cannot be

    @property
    def each(self) -> tuple[Serve, ...]:
        return (Serve(self.claim, self.desks), *self.others)


@dataclass(frozen=True, slots=True)
class No:
    """One claim of the object was refused, in words; `refusal` is None where the wish itself is wrong."""

    message: str
    refusal: Refusal | None = None
    serve: Serve | None = None

    @property
    def reason(self) -> str:
        return "InvalidAddress" if self.refusal is None else str(self.refusal.reason)


class SeveralBook(ClaimBook, Protocol):
    """What a dialect says beyond a ClaimBook."""

    failed: str  # reason word of the Event for whoever waits

    async def learns(self, claim: Object) -> bool: ...
    def is_bound(self, claim: Object) -> bool: ...
    def holds(self, claim: Object) -> tuple[Block, ...]: ...
    def refused(self, serve: Serve, refusal: Refusal) -> str: ...
    def status(self, claim: Object, blocks: tuple[Block, ...], why: str) -> Object: ...
    async def settle(self, claim: Object, keep: tuple[Block, ...]) -> None:
        """Give back what the claim holds beyond `keep`. Raises Conflict if it is no longer as it is here."""


class SeveralLife(ClaimLife):
    def __init__(self, book: SeveralBook, client: Client, events: Recorder, metrics: Metrics) -> None:
        super().__init__(book, client, events, metrics)
        self._several = book

    async def _serve(self, claim: Object, ref: Ref, serve: Serve) -> Outcome:
        assert isinstance(serve, Several)
        if await self._several.learns(claim):
            return After(0.0)
        noes = (No(serve.fault),) if serve.fault else self._reserve_all(serve)
        self._step_out(ref)
        if noes and (serve.fault or not serve.partly or len(noes) == len(serve.each)):
            return await self._go_without(claim, ref, noes)
        claim = await self._hold(claim)
        try:
            won = [await self._win(claim, ref, one, one.claim) for one in serve.each]
        except NotStored as error:
            if self._several.is_bound(claim):
                self._say(claim, ref, self._several.failed, str(error))  # what it has stays
            else:
                await self._go_without(claim, ref, (No(str(error)),))
            return After(AGAIN_SECONDS)
        bounds = [bound for bound in won if isinstance(bound, Bound)]
        if None in won or (len(bounds) < len(won) and not (serve.partly and bounds)):
            return After(1.0 if None in won else 0.0)  # lost since we looked: everything anew
        return await self._report(claim, ref, serve, bounds)

    def _reserve_all(self, serve: Several) -> tuple[No, ...]:
        """Takes in memory all that is free now, before anything is awaited; or nothing, if it must be all."""
        decisions = [decide(one.claim, [desk.space for desk in one.desks]) for one in serve.each]
        noes = self._noes(serve, decisions)
        if noes and not serve.partly:
            return noes
        for decision in decisions:
            if isinstance(decision, Grant):
                decision.take()
                self._metrics.decided(self._book.dialect, "grant")
        return noes

    def _noes(self, serve: Several, decisions: list[Decision]) -> tuple[No, ...]:
        return tuple(
            No(self._several.refused(one, decision), decision, one)
            for one, decision in zip(serve.each, decisions, strict=True)
            if isinstance(decision, Refusal)
        )

    async def _report(self, claim: Object, ref: Ref, serve: Several, bounds: list[Bound]) -> Outcome:
        blocks = tuple(bound.block for bound in bounds)
        noes = self._still_missing(serve) if len(bounds) < len(serve.each) else ()
        self._line_up(claim, ref, noes)
        why = _words(noes)
        written = await self._write_status(claim, self._several.status(claim, blocks, why))
        await self._several.settle(self._latest(claim, ref) if written else claim, blocks)
        if noes:
            self._say(claim, ref, self._several.failed, why)
        elif self._said.pop(ref, None) is not None or written:
            self._announce(claim, bounds)
        # What was missing a moment ago is free now: take it.
        return DONE if len(bounds) + len(noes) == len(serve.each) else After(0.0)

    def _still_missing(self, serve: Several) -> tuple[No, ...]:
        """Asked again without an await before lining up, so that nothing that came free is missed."""
        return self._noes(
            serve, [decide(one.claim, [desk.space for desk in one.desks]) for one in serve.each]
        )

    def _announce(self, claim: Object, bounds: list[Bound]) -> None:
        told = ", ".join(_told(bound) for bound in bounds)
        self._events.event(claim, "Normal", "AddressAllocated", f"allocated {told}")

    async def _go_without(self, claim: Object, ref: Ref, noes: tuple[No, ...]) -> Outcome:
        """Nothing for it now, and what it had goes: from its status, from the ledger, then our finalizer."""
        had = self._several.holds(claim)  # nothing was awaited since the decision
        self._line_up(claim, ref, noes)
        why = _words(noes)
        written = await self._write_status(claim, self._several.status(claim, (), why))
        if set(self._several.holds(claim)) - set(had):
            return After(0.0)  # another operator is serving it: what that one took is not ours to give back
        held = self._latest(claim, ref) if written else claim
        await self._several.settle(held, ())
        await self._let_go(held)
        self._say(claim, ref, self._several.failed, why)
        for no in noes:
            self._metrics.decided(self._book.dialect, "refusal", no.reason)
        return DONE

    def _latest(self, claim: Object, ref: Ref) -> Object:
        """As our own write left it. Without one, what was decided holds for the claim as it was read."""
        return self._book.cache.get(ref.namespace, ref.name) or claim

    def _line_up(self, claim: Object, ref: Ref, noes: tuple[No, ...]) -> None:
        for no in noes:
            if no.serve is not None:
                self._in_line[ref] = (*self._in_line.get(ref, ()), *no.serve.desks)
                for desk in no.serve.desks:
                    desk.wait(claim, ref, no.serve.claim.pin)

    async def _release(self, claim: Object) -> Outcome:
        if not meta.is_deleting(claim):
            await self._write_status(claim, self._several.status(claim, (), ""))
        return await super()._release(claim)


def _told(bound: Bound) -> str:
    pool = bound.desk.space.pool.name  # none where the pool it came from is gone
    return f"{bound.block.address} from {pool}" if pool else bound.block.address


def _words(noes: tuple[No, ...]) -> str:
    return "; ".join(dict.fromkeys(no.message for no in noes))
