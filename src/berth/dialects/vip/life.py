"""A Service's life: the shared one, with a look at what it left when it is gone."""

from __future__ import annotations

from berth.control.outcome import Outcome
from berth.dialects.dialect import Dependencies
from berth.dialects.several import SeveralLife
from berth.dialects.vip import kinds
from berth.dialects.vip.claims import ServiceBook
from berth.kube import patch
from berth.kube.meta import Object, Ref


class ServiceLife(SeveralLife):
    """A Service carries its addresses in an annotation too, written with the finalizer: one that comes back
    from a backup, without status and perhaps before its IP objects, asks for what it had."""

    def __init__(self, book: ServiceBook, kit: Dependencies) -> None:
        super().__init__(book, kit.client, kit.events, kit.metrics)
        self._services = book

    def _marks(self, claim: Object) -> list[patch.Operation]:
        chosen = ",".join(block.address for block in self._services.chosen(claim))
        return patch.set_annotation(claim, kinds.HAD_ADDRESS, chosen or None)

    async def reconcile(self, ref: Ref) -> Outcome:
        if self._services.cache.get(ref.namespace, ref.name) is None:
            await self._services.clean_up(ref)
        return await super().reconcile(ref)
