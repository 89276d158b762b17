"""A Metal3 claim's life: the shared one, with a look at what the claim already names, and at what it left."""

from __future__ import annotations

from berth import log
from berth.control.events import Recorder
from berth.control.outcome import After, Outcome
from berth.dialects.claim import ClaimLife, Serve, Wait
from berth.dialects.metal3.claims import Book
from berth.kube.client import Client
from berth.kube.meta import Object, Ref
from berth.metrics import Metrics

_log = log.get("berth.metal3")
FILLING_SECONDS = 0.2


class Life(ClaimLife):
    def __init__(self, book: Book, client: Client, events: Recorder, metrics: Metrics) -> None:
        super().__init__(book, client, events, metrics)
        self._metal3 = book

    async def reconcile(self, ref: Ref) -> Outcome:
        if not self._metal3.leases.kept.cache.filled:
            return After(FILLING_SECONDS)  # Cluster API was installed just now; who has what is being listed
        if self._metal3.cache.get(ref.namespace, ref.name) is None:
            await self._metal3.clean_up(ref)
        return await super().reconcile(ref)

    async def _wait(self, claim: Object, ref: Ref, wait: Wait) -> Outcome:
        self._metrics.decided("metal3", "refusal", wait.reason)
        return await super()._wait(claim, ref, wait)

    def _say(self, claim: Object, ref: Ref, reason: str, message: str) -> None:
        if self._said.get(ref) != f"{reason} {message}":
            _log.info("claim waits", reason=reason, cause=message)
        super()._say(claim, ref, reason, message)

    async def _serve(self, claim: Object, ref: Ref, serve: Serve) -> Outcome:
        if await self._metal3.catch_up(claim):
            return After(0.0)  # it is known now: decide again with it
        return await super()._serve(claim, ref, serve)
