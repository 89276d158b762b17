"""The pools at work: IPGroups for Services, GroupSegmentMappings for VirtualIPs, fed by one ledger.

    Shelf       the pools of one kind, a desk each, in name order
    Register    the ledger in memory: every IP object in the pool it is labelled with, in each pool that could
                give its address, and in `elsewhere`

`elsewhere` has no address to give. It knows every lease, so that a Service keeps what it has although its
group was edited or is gone; and everybody who waits waits there too, so that a new group finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from berth import log
from berth.dialects.pool import Desk
from berth.dialects.vip import kinds
from berth.dialects.vip.leases import IPLedger, is_of
from berth.dialects.vip.translate import Owner, Segment, block_of, holder_of, read_segment
from berth.kube import meta
from berth.kube.meta import Ref
from berth.leasing.model import Pool
from berth.net import Block, Family

Object = dict[str, Any]
Wake = Callable[[Ref], None]
Home = tuple[str, str]  # label and name of the pool an IP object is labelled with
_log = log.get("berth.vip")
LABELS = (kinds.MAPPING_LABEL, kinds.GROUP_LABEL)


@dataclass(slots=True)
class OpenSegment:
    segment: Segment
    desk: Desk
    closing: bool = False  # being deleted: what is leased stays, nothing new is given

    @property
    def serves(self) -> bool:
        return not self.closing and self.segment.fault is None


@dataclass(frozen=True, slots=True)
class IPLease:
    """What an IP object says."""

    block: Block
    holder: str
    home: Home | None


class Shelf:
    """The pools of one kind. `label` is what IP objects of its pools carry."""

    def __init__(self, label: str, wake: Wake) -> None:
        self.label = label
        self._wake = wake
        self._open: dict[str, OpenSegment] = {}  # in name order

    def __iter__(self) -> Iterator[OpenSegment]:
        return iter(self._open.values())

    def get(self, name: str) -> OpenSegment | None:
        return self._open.get(name)

    def open(self, obj: Object) -> OpenSegment:
        """A new or edited pool."""
        segment = read_segment(obj)
        opened = self._open.get(segment.name)
        if opened is None:
            opened = OpenSegment(segment, Desk(segment.pool, self._wake))
            self._open = dict(sorted({**self._open, segment.name: opened}.items()))
        elif opened.segment != segment:
            opened.segment = segment
            opened.desk.edit(segment.pool)
        if segment.fault is not None:
            _log.warning("no address comes from this pool", pool=segment.name, fault=segment.fault)
        opened.closing = meta.is_deleting(obj)
        return opened

    def close(self, name: str) -> None:
        self._open.pop(name, None)

    def desks(self, family: Family | None) -> tuple[Desk, ...]:
        """Those that have addresses of the family to give, full or not."""
        return tuple(pool.desk for pool in self if pool.serves and pool.desk.space.grounds_for(family))

    def is_home(self, pool: OpenSegment, home: Home | None) -> bool:
        return home == (self.label, pool.segment.name)

    def covering(self, block: Block) -> str | None:
        """The first pool whose segment has the address, excluded or not."""
        return next((pool.segment.name for pool in self if pool.segment.covers(block)), None)


class Register:
    def __init__(self, ledger: IPLedger, shelves: tuple[Shelf, ...], wake: Wake) -> None:
        self.ledger = ledger
        self.elsewhere = Desk(Pool(""), wake)
        self.shows: Callable[[str, Block], Ref | None]  # who still shows an address whose object is gone
        self.touched: Callable[[IPLease], None]
        self._shelves = shelves
        self._wake = wake

    # What pools and IP objects say

    def fill(self, shelf: Shelf, pool: OpenSegment) -> None:
        """A new or edited pool learns what is taken of it, and whoever waits looks again."""
        for record in self.ledger.of_pool(shelf.label, pool.segment.name):
            if (lease := _lease(record)) is not None:
                pool.desk.adopt(lease.block, lease.holder)
        for block, holder in list(self.elsewhere.space.leases()):
            if pool.desk.space.contains(block):
                pool.desk.adopt(block, holder)
        self.elsewhere.wake_all()

    def load(self) -> None:
        """Everything the ledger holds, before anyone is served."""
        for record in self.ledger.kept.cache:
            self.record_changed(None, record)

    def record_changed(self, old: Object | None, new: Object | None) -> None:
        before, after = _lease(old), _lease(new)
        if before == after:
            return
        if before is not None and after is None:
            self._gone(before.block, before.holder)
        elif before is not None:
            self._drop(before.block, before.holder)
        if after is not None:
            self._drop_rumour(after)
            self.adopt(after.block, after.holder, after.home)
        for lease in (before, after):
            if lease is not None:
                self.touched(lease)

    def _gone(self, block: Block, holder: str) -> None:
        shown_by = self.shows(holder, block)
        if shown_by is None:
            self.free(block, holder)
        else:
            _log.warning("IP object is gone and will be made again", address=block.address, holder=holder)
            self._wake(shown_by)

    # The leases in memory

    def holder_of(self, block: Block) -> str | None:
        return self.elsewhere.space.holder_of(block)

    def adopt(self, block: Block, holder: str, home: Home | None = None) -> None:
        for shelf in self._shelves:
            for pool in shelf:
                if pool.desk.space.contains(block) or shelf.is_home(pool, home):
                    pool.desk.adopt(block, holder)
        self.elsewhere.adopt(block, holder)

    def free(self, block: Block, holder: str) -> None:
        """Wakes whoever waits for it."""
        self.elsewhere.free(block, holder)
        for pool in self._pools():
            pool.desk.free(block, holder)

    def forget(self, ref: Ref, holder: str) -> None:
        """The object is gone: it waits no more, and what it had in memory only is free."""
        for desk in self._desks():
            desk.leave(ref)
        for block in self.blocks_of(holder):
            if (record := self.ledger.get(block)) is None or holder_of(record) != holder:
                self.free(block, holder)

    def blocks_of(self, holder: str) -> tuple[Block, ...]:
        return tuple({block: None for desk in self._desks() for block in desk.space.leases_of(holder)})

    async def withdraw(self, owner: Owner, keep: tuple[Block, ...] = ()) -> None:
        """Give back all that the owner holds but `keep`."""
        for record in await self.records_of(owner, keep):
            await self.ledger.discard(record)

    async def records_of(self, owner: Owner, keep: tuple[Block, ...] = ()) -> list[Object]:
        """The IP objects of all that the owner holds but `keep`, also of what was asked for and never
        answered. What it holds in memory only is free."""
        found = []
        for block in self.blocks_of(owner.key):
            if block in keep:
                continue
            record = self.ledger.get(block) or await self.ledger.find(block)
            if record is not None and is_of(record, owner):
                found.append(record)
            elif record is None or holder_of(record) != owner.key:
                self.free(block, owner.key)
        return found

    def _drop_rumour(self, lease: IPLease) -> None:
        """One address has one IP object: whoever was thought to have it without one has it not. That may be
        known to one desk only, where it was taken in memory for a write that was refused."""
        for other in {desk.space.holder_of(lease.block) for desk in self._desks()}:
            if other is not None and other != lease.holder:
                self._drop(lease.block, other)

    def _drop(self, block: Block, holder: str) -> None:
        """It has another holder now: nobody is woken."""
        for desk in self._desks():
            desk.space.release(block, holder)

    def _pools(self) -> Iterator[OpenSegment]:
        for shelf in self._shelves:
            yield from shelf

    def _desks(self) -> Iterator[Desk]:
        yield from (pool.desk for pool in self._pools())
        yield self.elsewhere


def _lease(record: Object | None) -> IPLease | None:
    block = None if record is None else block_of(record)
    if record is None or block is None:
        return None
    labels = meta.labels(record)
    home = next(((label, labels[label]) for label in LABELS if label in labels), None)
    return IPLease(block, holder_of(record), home)
