"""The IPAMRanges at work: for each the space in memory, who waits for it, and its ledger.

Memory follows two records: the page of the ledger (the range's status) and the requests' own `status.cidr`.
Holders are known by their UID. What the page calls taken and nobody is seen to hold is UNKNOWN_HOLDER's: a
request's whose news has not come yet, or nobody's any more, which the audit finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from berth import log
from berth.control.informers import Informer
from berth.dialects.kubipam.allocations import Page, read_cursors
from berth.dialects.kubipam.kinds import FINALIZER, TAKEN
from berth.dialects.kubipam.leases import RangeLedger
from berth.dialects.kubipam.memory import Memory, read_memory
from berth.dialects.kubipam.requests import Requests
from berth.dialects.kubipam.translate import RangeSpec, block_of, name_of, range_of, read_range
from berth.dialects.pool import Desk
from berth.errors import InvalidText
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.leasing.model import Pool
from berth.leasing.space import UNKNOWN_HOLDER
from berth.metrics import Metrics, PoolCounts, PoolKey
from berth.net import Block, RangeSet

Object = dict[str, Any]
_log = log.get("berth.kubipam")
LARGEST_COUNT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a range reads and writes."""

    client: Client
    ranges: Informer
    requests: Requests
    scope: str = ""  # the one namespace that is watched; empty: all


class OpenRange:
    def __init__(self, obj: Object, sources: Sources, wake: Callable[[Ref], None]) -> None:
        self.key = name_of(obj)
        self.uid = meta.uid(obj)
        self.desk = Desk(Pool(self.key), wake)
        self._wake = wake
        self.spec = RangeSpec(self.desk.space.pool)
        self.ledger = RangeLedger(sources.client, sources.ranges.cache, sources.requests, self)
        self.serving = False  # held, adopted and sound: RangeLife says so
        self.adopted = False  # everything that was in use when we came is on the page
        self._requests = sources.requests
        self._fault: str | None = None
        self._written: Object | None = None  # the spec as it was last read
        self._unwritten: dict[str, Block] = {}  # taken in memory, on their way to the page
        self._shared: list[tuple[str, Block]] = []  # blocks that overlap another's, from before our time
        self._memory = ("", Memory())
        self.slipped: list[Block] = []  # of requests that went past our finalizer: RangeLife looks after them

    @property
    def fault(self) -> str | None:
        return self._fault or self.ledger.fault

    # Following what is there

    def open(self, obj: Object) -> None:
        """Existing holders come first, before anyone is served."""
        self._read_spec(obj)
        self.memory(obj)
        self.ledger.open(obj)
        page = self.ledger.page
        if self.desk.space.goes_round:
            self.desk.space.cursors = read_cursors(obj.get("status") or {})
        for uid, block in self._requests.holders(self.key):
            if page is None or uid not in page.released:
                self.adopt(uid, block)
        if page is not None:
            self.turned(page)
            self.adopted = all(page.holds(block) for _, block in self._requests.holders(self.key))

    def follow(self, obj: Object) -> None:
        self._read_spec(obj)
        self.memory(obj)
        self.ledger.follow(obj)
        if self.ledger.page is None:
            self.adopted = self.serving = False  # someone wiped it, as upstream's controller does
        if self.fault is not None or meta.is_deleting(obj):
            self.serving = False

    def _read_spec(self, obj: Object) -> None:
        if obj.get("spec") == self._written:
            return
        self._written = obj.get("spec")
        try:
            spec, self._fault = read_range(obj), None
        except InvalidText as error:
            self._fault = str(error)
            return
        if spec.family is not self.spec.family:
            self.desk.space.cursors.clear()
        self.spec = spec
        self.ledger.family, self.ledger.goes_round = spec.family, spec.goes_round
        self.desk.edit(spec.pool)

    def adopt(self, uid: str, block: Block) -> None:
        if self.desk.adopt(block, uid) is None:
            return
        for held, other in self.desk.space.leases():
            if other != uid and held.overlaps(block) and self._requests.granted(other) == held:
                self._shared += [(uid, block), (other, held)]
                _log.warning(
                    "one block, two holders", range=self.key, cidr=str(block), uids=f"{uid}, {other}"
                )

    # What a backup brought back

    def memory(self, obj: Object) -> Memory:
        """What the range's annotation says; read once for every text of it."""
        text = meta.annotations(obj).get(TAKEN, "")
        if text != self._memory[0]:
            self._memory = (text, read_memory(obj))
        return self._memory[1]

    def keeps(self, uid: str, namespace: str, block: Block) -> bool:
        """Is this block kept for requests of this namespace, and has nobody come for it yet?"""
        page = self.ledger.page
        if page is None or not page.kept.contains(block) or not self._memory[1].is_for(namespace, block):
            return False
        return self.desk.space.holder_of(block) in (None, UNKNOWN_HOLDER, uid)

    def hand_back(self, uid: str, block: Block) -> None:
        """In memory it is this request's from now on, not UNKNOWN_HOLDER's; the rest around it is."""
        space = self.desk.space
        unknown = []
        while (lease := space.overlapping(block)) is not None and lease.holder == UNKNOWN_HOLDER:
            unknown.append(lease.block)
            space.release(lease.block, UNKNOWN_HOLDER)
        self.desk.adopt(block, uid)
        for rest in RangeSet(held.range for held in unknown).minus(RangeSet([block.range])).blocks():
            self.desk.adopt(rest, UNKNOWN_HOLDER)

    def held(self) -> Iterator[tuple[str, Block]]:
        """Namespace and block of each request that is known to hold one."""
        for block, uid in self.desk.space.leases():
            if (request := self._requests.find(uid)) is not None:
                yield request["metadata"]["namespace"], block

    def counts(self, page: Page) -> Object:
        """As fields of the status."""
        total = RangeSet(self.spec.pool.ranges)
        taken, kept = _count(page.taken, total), _count(page.kept, total)
        counts = {"total": total.count, "used": taken - kept, "free": total.count - taken, "reserved": kept}
        return {"addresses": {name: min(count, LARGEST_COUNT) for name, count in counts.items()}}

    def turned(self, page: Page) -> None:
        """Others wrote the page: learn what they took and gave back. Whoever granted may be dead by now, so
        the request is looked at here too: it gets the block, or has another and this one goes back."""
        space = self.desk.space
        for uid, block in page.pending.items():
            if block not in space.leases_of(uid):
                self.desk.adopt(block, uid)
                if (request := self._requests.find(uid)) is not None:
                    self._wake(meta.ref(request))
        for uid in page.released:
            self.free_all(uid)
        if space.goes_round:
            space.cursors = dict(page.cursors)
        if not self._tallies(page):
            self.recount()

    def wrote(self, page: Page, returned: list[tuple[str, Block]]) -> None:
        """We wrote the page."""
        for uid, block in returned:
            self.desk.free(block, uid)
        if self.desk.space.leases_of(UNKNOWN_HOLDER):
            self.recount()

    def _tallies(self, page: Page) -> bool:
        usage = self.desk.space.usage()
        unwritten = sum(block.size for block in self._unwritten.values())
        return usage.used + usage.outside == page.taken.count + unwritten

    def recount(self) -> None:
        """What is on the page and nobody's has an unknown holder; what left with its holder is free."""
        space, page = self.desk.space, self.ledger.page or Page()
        for block, uid in [lease for lease in space.leases() if lease.holder != UNKNOWN_HOLDER]:
            is_nobodys = not page.holds(block) or page.kept.contains(block)
            if is_nobodys and self._requests.find(uid) is None and uid not in self._unwritten:
                self.desk.free(block, uid)
        known = [lease for lease in space.leases() if lease.holder != UNKNOWN_HOLDER]
        unknown = page.taken.minus(RangeSet(block.range for block, _ in known))
        blocks, held = set(unknown.blocks()), set(space.leases_of(UNKNOWN_HOLDER))
        for block in held - blocks:
            self.desk.free(block, UNKNOWN_HOLDER)
        for block in blocks - held:
            self.desk.adopt(block, UNKNOWN_HOLDER)

    # What requests do

    def seen(self, request: Object) -> None:
        """A request shows a block."""
        uid, block = meta.uid(request), block_of(request)
        page = self.ledger.page
        if block is None or block in self.desk.space.leases_of(uid):
            return
        if page is not None and uid in page.released:
            return
        self.adopt(uid, block)
        if page is not None and not self._tallies(page):
            self.recount()

    def gone(self, uid: str) -> None:
        """A request is gone. What the page still holds of it stays taken until the audit has looked, and what
        is on its way there until whoever writes it finds nobody to give it to."""
        page = self.ledger.page
        if uid in self._unwritten:
            return
        for block in self.desk.space.leases_of(uid):
            if page is None or not page.holds(block):
                self.desk.free(block, uid)
            elif page.kept.contains(block):
                self.recount()

    def free_all(self, uid: str) -> None:
        for block in self.desk.space.leases_of(uid):
            self.desk.free(block, uid)
        self._shared = [(other, block) for other, block in self._shared if other != uid]

    def lost(self, uid: str, block: Block) -> None:
        """The ledger refused a block that was free in memory."""
        self.desk.free(block, uid)
        page = self.ledger.page
        if page is not None and page.touches(block) and self.desk.space.is_free(block):
            self.recount()

    def shared(self, uid: str, block: Block) -> list[Block]:
        """What others hold of this block too."""
        others = [
            held for other, held in self._shared if other != uid and self._requests.granted(other) == held
        ]
        return [held for held in others if held.overlaps(block)]

    def is_unwritten(self, uid: str) -> bool:
        return uid in self._unwritten

    async def grant(self, uid: str, block: Block, *, chosen: bool, is_returning: bool) -> None:
        """Raises GrantLost, and Stale as the ledger does."""
        self._unwritten[uid] = block
        try:
            await self.ledger.grant(uid, block, chosen=chosen, is_returning=is_returning)
        finally:
            self._unwritten.pop(uid, None)


class Ranges:
    def __init__(self, sources: Sources, metrics: Metrics, wake: Callable[[Ref], None]) -> None:
        self._sources = sources
        self._metrics = metrics
        self._wake = wake
        self._open: dict[str, OpenRange] = {}

    def __iter__(self) -> Iterator[OpenRange]:
        return iter(list(self._open.values()))

    def get(self, key: str) -> OpenRange | None:
        return self._open.get(key)

    def object(self, key: str) -> Object | None:
        return self._sources.ranges.cache.get(*key.split("/", 1))

    def see(self, obj: Object) -> None:
        """A new or changed range. One that was made anew under the same name begins anew."""
        held = self._open.get(name_of(obj))
        if held is not None and held.uid == meta.uid(obj):
            held.follow(obj)
            return
        opened = self._open[name_of(obj)] = OpenRange(obj, self._sources, self._wake)
        opened.open(obj)

    def close(self, key: str) -> None:
        if (opened := self._open.pop(key, None)) is not None:
            opened.ledger.close()
        self._metrics.pool_gone(PoolKey("kubipam", *key.split("/", 1)))

    def rewound(self, key: str) -> None:
        """A backup was restored: nothing we remember of this range counts, it begins anew."""
        self._sources.requests.rewound()
        self.close(key)

    def request_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None and (new is None or meta.uid(old) != meta.uid(new)):
            self._sources.requests.left(meta.uid(old))
            if (opened := self._open.get(range_of(old))) is not None:
                opened.gone(meta.uid(old))
                if (block := _slipped(old)) is not None:
                    opened.slipped.append(block)
        if new is None:
            return
        self._sources.requests.came(meta.uid(new))
        if (opened := self._open.get(range_of(new))) is not None:
            opened.seen(new)

    def forget(self, ref: Ref) -> None:
        for opened in self._open.values():
            if opened.desk.waits(ref):
                opened.desk.leave(ref)

    def count(self, opened: OpenRange) -> None:
        usage, page = opened.desk.space.usage(), opened.ledger.page
        kept = 0 if page is None else _count(page.kept, RangeSet(opened.spec.pool.ranges))
        counts = PoolCounts(usage.total, usage.used - kept, usage.free, kept)
        self._metrics.pool(PoolKey("kubipam", *opened.key.split("/", 1)), counts)


def _count(ranges: RangeSet, total: RangeSet) -> int:
    return sum(total.count_within(item) for item in ranges)


def _slipped(request: Object) -> Block | None:
    """Its block, if it was gone without ever being seen to go: in the API server a delete can pass by a
    finalizer that was stored a moment ago."""
    held = meta.has_finalizer(request, FINALIZER) and not meta.is_deleting(request)
    return block_of(request) if held else None
