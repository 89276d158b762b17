"""An IPAMRange's own life: held from the first pass, adopted before it serves, kept while referred to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from berth import log
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.kubipam import kinds
from berth.dialects.kubipam.allocations import Draft
from berth.dialects.kubipam.leases import Stale, version_of
from berth.dialects.kubipam.memory import is_asked_for, remember, remembered
from berth.dialects.kubipam.orphans import compare
from berth.dialects.kubipam.ranges import OpenRange, Ranges, Sources
from berth.dialects.kubipam.requests import holders
from berth.dialects.kubipam.translate import range_of, read_wish, referred
from berth.errors import Conflict, InvalidText, NotFound
from berth.kube import meta, patch
from berth.kube.client import PatchKind
from berth.kube.meta import Ref
from berth.net import Block, RangeSet

Object = dict[str, Any]
_log = log.get("berth.kubipam.range")
LOOK_AGAIN_SECONDS = 1.0
REMEMBER_SECONDS = 1.0
SHARE = 20  # of the time, what remembering may cost on a range with very many requests: one part of these
CRD_SECONDS = 15.0  # no watch of ours tells that a CRD was applied


class RangeLife:
    def __init__(self, sources: Sources, ranges: Ranges) -> None:
        self._client = sources.client
        self._kept = sources.ranges
        self._requests = sources.requests
        self._scope = sources.scope
        self._ranges = ranges
        self._remembers_at: dict[str, float] = {}  # when the next look is due, by the range's UID
        self.opened: Callable[[str], None] = lambda key: None  # told when a range serves, or cannot

    async def reconcile(self, ref: Ref) -> Outcome:
        obj = self._kept.cache.get(ref.namespace, ref.name)
        opened = self._ranges.get(f"{ref.namespace}/{ref.name}")
        if obj is None or opened is None:
            alive = {one.uid for one in self._ranges}
            self._remembers_at = {uid: at for uid, at in self._remembers_at.items() if uid in alive}
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
        return await self._remember(opened) if opened.adopted else DONE

    async def _remember(self, opened: OpenRange) -> Outcome:
        """Whose what is, for a backup; off the way of those who are served, and not with every group."""
        started_at, page = time.monotonic(), opened.ledger.page
        obj = self._ranges.object(opened.key)
        if (wait := self._remembers_at.get(opened.uid, 0.0) - started_at) > 0:
            return After(wait)  # before the look at every request: under load we are asked all the time
        if page is None or obj is None:
            return DONE
        text = remember(opened.memory(obj), page.taken, opened.held()).rendered()
        cost = time.monotonic() - started_at
        self._remembers_at[opened.uid] = started_at + max(REMEMBER_SECONDS, SHARE * cost)
        if text != meta.annotations(obj).get(kinds.TAKEN, "{}"):
            await opened.ledger.annotate(kinds.TAKEN, text)
        return DONE

    async def _hold(self, obj: Object) -> None:
        """The seed promises that no range goes while a request refers to it: every range is held."""
        steps = patch.add_finalizer(obj, kinds.FINALIZER)
        if steps is not None:
            with suppress(NotFound):
                await self._kept.patch(obj, steps, kind=PatchKind.JSON)

    async def _show(self, opened: OpenRange) -> None:
        if opened.fault is not None:
            self._describe(opened, kinds.INVALID, opened.fault, "PoolInvalid")
            await opened.ledger.flush()
        if opened.fault is None:  # by now: where pages were not kept, that write has found out
            self._describe(opened, kinds.READY, "", kinds.READY)
            if not opened.adopted:
                await self._adopt(opened)
            await opened.ledger.flush()

    def _describe(self, opened: OpenRange, state: str, message: str, reason: str) -> None:
        obj = self._ranges.object(opened.key) or {}
        generation = obj.get("metadata", {}).get("generation", 1)
        opened.ledger.describe(state, message, reason, generation)

    async def _adopt(self, opened: OpenRange) -> None:
        """Put every block that requests hold on the page, before anything is granted from it.

        The requests are read from the server after the page: then what is on neither side is truly free. A
        range without a page that remembers one came from a backup: what it remembers is kept for those who
        had it, and who is there already has it at once, before anybody who is new.
        """
        version = opened.ledger.version
        found = await self._everyone(opened, version) if self._was_served(opened) else []
        page = opened.ledger.page
        released = page.released if page is not None else frozenset()
        blocks = [block for uid, block in holders(found, opened.key) if uid not in released]
        in_use = RangeSet(block.range for block in blocks)
        memory = opened.memory(self._ranges.object(opened.key) or {})

        def edit(draft: Draft) -> None:
            draft.adopt(in_use)
            if page is None:
                draft.keep(memory.all())
                for request, block in _returning(found, opened):
                    is_returning = memory.is_for(request["metadata"]["namespace"], block)
                    if is_returning or opened.desk.space.contains(block):
                        draft.grant(meta.uid(request), block, is_returning=is_returning)

        try:
            await opened.ledger.change(edit, version, begins=True)
        except Stale as error:
            raise Conflict(409, "the range changed while its requests were read") from error
        opened.adopted = True
        if opened.ledger.page is not None:
            opened.turned(opened.ledger.page)
        if blocks:
            _log.info("adopted what is in use", range=opened.key, requests=len(blocks))

    def _was_served(self, opened: OpenRange) -> bool:
        """Can anyone hold a block of it? Not if no status was ever written and no request names it; who
        watches one namespace only cannot tell."""
        obj = self._ranges.object(opened.key) or {}
        known = obj.get("status") or kinds.TAKEN in meta.annotations(obj)
        return bool(self._scope or known or self._requests.referring(opened.key))

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
        await self._kept.remove_finalizer(obj, kinds.FINALIZER)
        return DONE

    def _refer(self, requests: Iterable[Object], key: str) -> bool:
        return any(key in referred(request) for request in requests)

    async def _wait(self, opened: OpenRange) -> Outcome:
        self._describe(opened, kinds.DELETING, kinds.WAITING_FOR_REQUESTS, "PoolDeleting")
        await opened.ledger.flush()
        return DONE


def _returning(requests: Iterable[Object], opened: OpenRange) -> Iterable[tuple[Object, Block]]:
    """Who has nothing now, and remembers a block that is still what it asks for; the oldest first."""
    asking = [one for one in requests if range_of(one) == opened.key and not _has_or_goes(one)]
    for request in sorted(asking, key=lambda one: one["metadata"].get("creationTimestamp", "")):
        block = remembered(request)
        try:
            if block is not None and is_asked_for(block, read_wish(request, opened.spec)):
                yield request, block
        except InvalidText:
            continue


def _has_or_goes(request: Object) -> bool:
    return bool((request.get("status") or {}).get("cidr")) or meta.is_deleting(request)
