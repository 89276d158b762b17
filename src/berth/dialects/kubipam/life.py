"""An IPAMRange's own life: held from the first pass, adopted before it serves, kept while referred to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from berth import log
from berth.control.letting_go import let_go
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.kubipam import kinds
from berth.dialects.kubipam.audit import compare
from berth.dialects.kubipam.ledger import Stale, version_of
from berth.dialects.kubipam.ranges import OpenRange, Ranges, Sources
from berth.dialects.kubipam.requests import holders
from berth.dialects.kubipam.translate import name_of, referred
from berth.errors import Conflict, NotFound
from berth.kube import meta, patch
from berth.kube.client import PatchKind
from berth.kube.meta import Ref
from berth.net import RangeSet

Object = dict[str, Any]
_log = log.get("berth.kubipam.range")
LOOK_AGAIN_SECONDS = 1.0
CRD_SECONDS = 15.0  # no watch of ours tells that a CRD was applied


class RangeLife:
    def __init__(self, sources: Sources, ranges: Ranges) -> None:
        self._client = sources.client
        self._cache = sources.ranges
        self._requests = sources.requests
        self._scope = sources.scope
        self._ranges = ranges
        self.opened: Callable[[str], None] = lambda key: None  # told when a range serves, or cannot

    async def reconcile(self, ref: Ref) -> Outcome:
        obj = self._cache.get(ref.namespace, ref.name)
        opened = self._ranges.get(f"{ref.namespace}/{ref.name}")
        if obj is None or opened is None:
            return DONE
        if opened.ledger.has_leftovers():
            await opened.ledger.tidy()
        if opened.slipped:
            await self._take_back(opened)
        if meta.is_deleting(obj):
            return await self._going(obj, opened)
        await self._hold(obj)
        await self._show(opened)
        self._ranges.count(opened)
        if opened.fault is None and not opened.serving:
            opened.serving = True
            self.opened(opened.key)
        if opened.ledger.is_pruned:
            self.opened(opened.key)
            return After(CRD_SECONDS)
        return DONE

    async def _hold(self, obj: Object) -> None:
        """The seed promises that no range goes while a request refers to it: every range is held."""
        steps = patch.add_finalizer(obj, kinds.FINALIZER)
        if steps is not None:
            await self._patch(obj, steps)

    async def _show(self, opened: OpenRange) -> None:
        if opened.fault is not None:
            opened.ledger.describe(kinds.INVALID, opened.fault)
            await opened.ledger.flush()
        if opened.fault is None:  # by now: where pages were not kept, that write has found out
            opened.ledger.describe(kinds.READY, "")
            if not opened.adopted:
                await self._adopt(opened)
            await opened.ledger.flush()

    async def _adopt(self, opened: OpenRange) -> None:
        """Put every block that requests hold on the page, before anything is granted from it.

        The requests are read from the server after the page: then what is on neither side is truly free.
        """
        version = opened.ledger.version
        found = await self._everyone(opened, version) if self._was_served(opened) else []
        page = opened.ledger.page
        released = page.released if page is not None else frozenset()
        blocks = [block for uid, block in holders(found, opened.key) if uid not in released]
        in_use = RangeSet(block.range for block in blocks)
        try:
            await opened.ledger.change(lambda draft: draft.adopt(in_use), version, begins=True)
        except Stale as error:
            raise Conflict(409, "the range changed while its requests were read") from error
        opened.adopted = True
        if blocks:
            _log.info("adopted what is in use", range=opened.key, requests=len(blocks))

    def _was_served(self, opened: OpenRange) -> bool:
        """Can anyone hold a block of it? Not if no status was ever written and no request names it; who
        watches one namespace only cannot tell."""
        obj = self._ranges.object(opened.key) or {}
        return bool(self._scope or obj.get("status") or self._requests.referring(opened.key))

    async def _everyone(self, opened: OpenRange, version: str) -> list[Object]:
        """All requests, read while the server's page was the one of this version: not one from before a
        restored backup, of which no watch has told us yet."""
        found = await self._list()
        if version_of(await opened.ledger.look()) != version:
            raise Conflict(409, "the range is another one on the server")
        return found

    async def _list(self) -> list[Object]:
        """Always of all namespaces: who asks from elsewhere holds a block like any other."""
        return (await self._client.list(kinds.REQUEST)).items

    async def _take_back(self, opened: OpenRange) -> None:
        """Give back the blocks of requests that slipped away: what is on the page, pending for nobody, and in
        no request that was read after the page is free, however many operators find that out."""
        slipped, page, version = list(opened.slipped), opened.ledger.page, opened.ledger.version
        if page is not None:
            nobodys = compare(page, opened.key, await self._list()).nobodys
            free = RangeSet(part for block in slipped for part in nobodys.within(block))
            try:
                await opened.ledger.change(lambda draft: draft.give_back(free), version)
            except Stale as error:
                raise Conflict(409, "the range changed while its requests were read") from error
        del opened.slipped[: len(slipped)]
        opened.recount()

    # The end

    async def _going(self, obj: Object, opened: OpenRange) -> Outcome:
        opened.serving = False
        if not meta.has_finalizer(obj, kinds.FINALIZER):
            return DONE
        if self._refer(self._requests.referring(opened.key), opened.key):
            return await self._wait(opened)
        # Nobody we know of. One request may be news to us, so the server is asked; and the page must be the
        # one we looked at, so that no other operator has granted anything since.
        if self._refer(await self._list(), opened.key):
            await self._wait(opened)
            return After(LOOK_AGAIN_SECONDS)
        await let_go(self._client, kinds.RANGE, self._cache, obj, kinds.FINALIZER)
        return DONE

    def _refer(self, requests: Iterable[Object], key: str) -> bool:
        return any(key in referred(request) for request in requests)

    async def _wait(self, opened: OpenRange) -> Outcome:
        opened.ledger.describe(kinds.DELETING, kinds.WAITING_FOR_REQUESTS)
        await opened.ledger.flush()
        return DONE

    async def _patch(self, obj: Object, steps: list[Object]) -> None:
        namespace, name = name_of(obj).split("/", 1)
        try:
            written = await self._client.patch(kinds.RANGE, name, steps, namespace, kind=PatchKind.JSON)
        except NotFound:
            self._cache.bury(obj)
            return
        self._cache.observe(written)
