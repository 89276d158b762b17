"""What the claim reconciler asks of this dialect: when to serve a request, how to write, what to report.

The block is taken in memory before the finalizer is stored, so an annotation with it goes in the same write;
only who lost that block to another operator is written again. A backup keeps the annotation, not the status.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from berth.control.events import Recorder
from berth.control.informers import Informer
from berth.control.outcome import DONE, Outcome
from berth.dialects.claim import Allocation, Ask, ClaimKind, Leave, Plan, Refused, Release, Serve, Wait
from berth.dialects.kubipam import kinds, translate
from berth.dialects.kubipam.allocations import read_page
from berth.dialects.kubipam.leases import GrantLost, Stale
from berth.dialects.kubipam.memory import is_asked_for, remembered
from berth.dialects.kubipam.ranges import OpenRange, Ranges
from berth.dialects.kubipam.translate import BlockWish, block_of, range_of, read_wish
from berth.dialects.pool import Desk
from berth.errors import Conflict, InvalidText, NotFound
from berth.kube import meta, patch
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.leasing.decide import Refusal
from berth.leasing.model import Claim
from berth.net import Block

Object = dict[str, Any]


class RequestHandler:
    kind = ClaimKind("kubipam", kinds.FINALIZER, announces=False)  # every grant is told on the range

    def __init__(self, client: Client, requests: Informer, ranges: Ranges, events: Recorder) -> None:
        self.informer = requests
        self._client = client
        self._ranges = ranges
        self._events = events
        # Told of a range after each grant. Nothing may be awaited between a grant and its delivery.
        self.look_after: Callable[[str], None] = lambda key: None

    def is_unsettled(self, request: Object) -> bool:
        return meta.is_deleting(request) or not translate.is_settled(request, self.kind.finalizer)

    # When

    async def plan(self, request: Object) -> Plan:
        opened = self._ranges.get(range_of(request))
        if meta.is_deleting(request):
            # Another controller's finalizer says that the block is still in use.
            return Release() if meta.finalizers(request) == [self.kind.finalizer] else Leave()
        if (request.get("status") or {}).get("cidr"):
            return self._holding(request, opened)
        if opened is None:
            return self._without_range(request)
        return self._asking(request, opened)

    def _holding(self, request: Object, opened: OpenRange | None) -> Plan:
        """It has a block and keeps it, whatever becomes of its range or its spec."""
        block = block_of(request)
        if opened is None or block is None:
            return Leave()
        held = opened.desk.space.leases_of(meta.uid(request))
        if held == (block,) and translate.is_settled(request, self.kind.finalizer):
            return Leave()
        return Serve((Ask(Claim(meta.uid(request), pin=block), (opened.desk,)),))

    def _without_range(self, request: Object) -> Plan:
        key = range_of(request)
        if not key.partition("/")[2]:
            return Wait("PoolNotSpecified", "IPAMRange object not specified")
        return Wait("PoolNotFound", f"IPAMRange {key} not found")

    def _asking(self, request: Object, opened: OpenRange) -> Plan:
        obj = self._ranges.object(opened.key)
        if obj is None or meta.is_deleting(obj):
            return Wait("PoolDeleting", f"IPAMRange {opened.key} not valid: IPRange deleted")
        if opened.fault is not None:
            return Wait("PoolInvalid", f"IPAMRange {opened.key} not valid: {opened.fault}")
        try:
            wish = read_wish(request, opened.spec)
        except InvalidText as error:
            return Wait("InvalidRequest", str(error))
        if not opened.serving:
            return Leave()  # it is being held and adopted; it wakes us when it serves
        return Serve((Ask(self._claim(request, opened, wish), (opened.desk,)),))

    def _claim(self, request: Object, opened: OpenRange, wish: BlockWish) -> Claim:
        uid = meta.uid(request)
        for block in opened.desk.space.leases_of(uid):
            return Claim(uid, pin=block)  # granted before, by us or another operator, and not yet shown
        had = remembered(request)
        if had is not None and is_asked_for(had, wish):
            if opened.keeps(uid, request["metadata"]["namespace"], had):
                opened.hand_back(uid, had)  # it is back from a backup
                return Claim(uid, pin=had)
            if opened.desk.space.is_free(had):
                return Claim(uid, pin=had)
        return Claim(uid, pin=wish.pin) if wish.pin is not None else Claim(uid, length=wish.length)

    # How

    def marks(self, request: Object, blocks: tuple[Block, ...]) -> list[patch.Operation]:
        block = block_of(request) or next(iter(blocks), None)
        return patch.set_annotation(request, kinds.CIDR, None if block is None else str(block))

    async def write(self, request: Object, desk: Desk, block: Block) -> Object:
        uid, opened = meta.uid(request), self._ranges.get(range_of(request))
        if opened is None or opened.desk is not desk:
            raise Conflict(409, "the range is another one by now")
        if block_of(request) == block:
            await self._settle(opened, request, block)
            return request
        page = opened.ledger.page
        if page is not None and page.pending.get(uid) == block:
            await self._make_sure(opened, uid, block)
            return request
        await self._grant(request, opened, block)
        return request

    async def _make_sure(self, opened: OpenRange, uid: str, block: Block) -> None:
        """Granted earlier, or by another operator, and to be delivered now. If the server is back from a
        backup that no watch has told us of, its page says otherwise: there the block may be another's."""
        namespace, name = opened.key.split("/", 1)
        page = read_page((await self._client.get(kinds.RANGE, name, namespace)).get("status") or {})
        if page is None or page.pending.get(uid) != block:
            raise Conflict(409, f"{block} is not pending for it on the server any more")

    async def _grant(self, request: Object, opened: OpenRange, block: Block) -> None:
        uid = meta.uid(request)
        is_returning = opened.keeps(uid, request["metadata"]["namespace"], block)
        if not opened.serving or not (is_returning or opened.desk.space.contains(block)):
            opened.desk.free(block, uid)
            raise Conflict(409, "the range changed meanwhile")
        try:
            chosen = not (request["spec"].get("request") or "")
            await opened.grant(uid, block, chosen=chosen, is_returning=is_returning)
        except Stale:
            await self._make_sure(opened, uid, block)
        except GrantLost as error:
            opened.lost(uid, block)
            raise Conflict(409, f"{block} was granted by someone else") from error
        self.look_after(opened.key)  # someone may have gone while we wrote, perhaps this very request
        self._tell(opened, "allocation", f"cidr {block} allocated")

    async def _settle(self, opened: OpenRange, request: Object, block: Block) -> None:
        """It shows its block. A second one, granted by someone who had not seen the first, goes back; but our
        cache may still show what a restored backup took from it."""
        uid, epoch, page = meta.uid(request), opened.ledger.epoch, opened.ledger.page
        extra = [held for held in opened.desk.space.leases_of(uid) if held != block]
        if extra and page is not None and uid in page.pending:
            live = await self._alive(request)
            if live is None or block_of(live) != block:
                raise Conflict(409, "the request is another one on the server")
            try:
                await opened.ledger.settle(uid, block, epoch)
            except Stale as error:
                raise Conflict(409, "the range changed while its request was read") from error
        for held in extra:
            opened.desk.free(held, uid)

    async def release(self, request: Object) -> Outcome | None:
        if not await self._withdraw(request):
            return DONE  # somebody else let it go, or it is back; that change wakes us
        self._ranges.forget(meta.ref(request))
        return None

    async def gone(self, ref: Ref) -> Outcome:
        self._ranges.forget(ref)
        return DONE

    async def _withdraw(self, request: Object) -> bool:
        opened, uid = self._ranges.get(range_of(request)), meta.uid(request)
        while opened is not None:
            if self._is_beginning(opened):
                raise Conflict(409, "nothing is released before what is in use was written down")
            if opened.ledger.page is None or uid in opened.ledger.page.released:
                break  # only the finalizer is left
            epoch = opened.ledger.epoch
            live = await self._alive(request)
            if live is None:
                await self._abandon(opened, uid)
                return False
            if not meta.is_deleting(live) or not meta.has_finalizer(live, self.kind.finalizer):
                return False  # a restored backup brought it back, or someone else let it go
            try:
                await self._release(opened, live, epoch)
                return True
            except Stale:
                continue  # others wrote the page since we looked at the request: look again
        if opened is not None:
            opened.free_all(uid)
        return True

    def _is_beginning(self, opened: OpenRange) -> bool:
        """Is its page about to be written, from a list that perhaps still names this request?"""
        obj = self._ranges.object(opened.key)
        alive = obj is not None and not meta.is_deleting(obj)
        return alive and opened.fault is None and not opened.adopted

    async def _alive(self, request: Object) -> Object | None:
        """The request as it is stored: a cache that lags must not release twice."""
        namespace, name = request["metadata"]["namespace"], request["metadata"]["name"]
        try:
            live = await self._client.get(self.informer.in_use, name, namespace)
        except NotFound:
            live = None
        if live is None or meta.uid(live) != meta.uid(request):
            self.informer.cache.forget_deleted(request)
            return None
        self.informer.cache.put(live)
        return live

    async def _abandon(self, opened: OpenRange, uid: str) -> None:
        page = opened.ledger.page
        if page is not None and uid in page.pending:
            await opened.ledger.abandon(uid)
            opened.free_all(uid)

    async def _release(self, opened: OpenRange, live: Object, epoch: int) -> None:
        uid, block = meta.uid(live), block_of(live)
        page = opened.ledger.page
        if block is None and (page is None or uid not in page.pending):
            opened.free_all(uid)  # it never got one
            return
        blocks = opened.desk.space.leases_of(uid) if block is None else (block,)
        shared = [held for mine in blocks for held in opened.shared(uid, mine)]
        await opened.ledger.release(uid, [] if block is None else [block], shared, epoch)
        opened.free_all(uid)
        self._ranges.count(opened)
        for released in blocks:
            self._tell(opened, "release", f"cidr {released} released")

    def _tell(self, opened: OpenRange, reason: str, message: str) -> None:
        obj = self._ranges.object(opened.key)
        if obj is not None:
            self._events.event(obj, "Normal", reason, message)

    # What is reported

    def status(self, claim: Object, got: Sequence[Allocation], refused: Sequence[Refused]) -> Object:
        now = datetime.now(UTC)
        if got:
            return translate.granted(claim, got[0].block, now)
        no = refused[0]
        return translate.refused(claim, no.message, no.reason, now, busy=no.ask is not None)

    def explain(self, claim: Object, ask: Ask, refusal: Refusal) -> Refused:
        opened = self._ranges.get(range_of(claim))
        if opened is None:
            raise Conflict(409, "the range is gone")
        message = read_wish(claim, opened.spec).busy_message(opened.spec.pool.ranges)
        return Refused(str(refusal.reason), message, refusal.detail, ask)
