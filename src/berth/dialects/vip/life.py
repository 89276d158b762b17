"""A Service's life: the shared one, with a look at what it left when it is gone."""

from __future__ import annotations

from berth.control.outcome import Outcome
from berth.dialects.several import SeveralLife
from berth.dialects.shape import Kit
from berth.dialects.vip.book import ServiceBook
from berth.kube.meta import Ref


class ServiceLife(SeveralLife):
    def __init__(self, book: ServiceBook, kit: Kit) -> None:
        super().__init__(book, kit.client, kit.events, kit.metrics)
        self._services = book

    async def reconcile(self, ref: Ref) -> Outcome:
        if self._services.cache.get(ref.namespace, ref.name) is None:
            await self._services.clean_up(ref)
        return await super().reconcile(ref)
