"""The page of the ledger: what an IPAMRange's status says is taken. Values and edits, pure.

    taken     every address that is somebody's, as merged ranges: few while the range is dense
    pending   grants that are on this page but perhaps not yet in their request's status, by the request's UID
    released  UIDs whose blocks left this page while their request perhaps still shows them
    cursors   where round robin goes on, by length
    kept      what of `taken` waits for requests of a backup to come back: they had it

An edit is a `Draft` of one page and becomes the next by one conditional write. `pending` and `released` are
what makes each step happen exactly once, whoever repeats it after a crash: a request that is pending gets
the block it is pending for, and one that is released has nothing more to give back. An entry goes when its
second half is known to be done, and that never becomes untrue: a granted `cidr` stays, a UID does not return.
(Unless a backup is restored: then the range begins anew, and whoever is seen again is there again.)
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from berth.errors import InvalidText
from berth.net import Block, Family, Range, RangeSet, parse_address, parse_block, parse_range
from berth.net.address import text_of

Object = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    taken: RangeSet = field(default_factory=RangeSet)
    pending: Mapping[str, Block] = field(default_factory=dict)
    released: frozenset[str] = frozenset()
    cursors: Mapping[int, int] = field(default_factory=dict)
    kept: RangeSet = field(default_factory=RangeSet)

    def holds(self, block: Block) -> bool:
        return self.taken.contains(block)

    def touches(self, block: Block) -> bool:
        """Is any part of it taken?"""
        return next(self.taken.within(block), None) is not None

    def rendered(self, family: Family) -> Object:
        """As fields of the status; None: absent."""
        cursors = [
            f"{text_of(family, first)}/{length}"
            for length, first in sorted(self.cursors.items())
            if first <= family.top
        ]
        return {
            "taken": [str(item) for item in self.taken],
            "pending": [f"{uid} {block}" for uid, block in self.pending.items()] or None,
            "released": sorted(self.released) or None,
            "roundRobin": cursors or None,
            "kept": [str(item) for item in self.kept] or None,
        }


def read_page(status: Mapping[str, Any]) -> Page | None:
    """None: nobody has begun one. Raises InvalidText if someone wrote what cannot be read."""
    if status.get("taken") is None:
        return None
    taken = RangeSet(_read(parse_range, text) for text in status["taken"])
    pending = dict(_read(_pending, text) for text in status.get("pending") or ())
    released = frozenset(status.get("released") or ())
    kept = RangeSet(_read(parse_range, text) for text in status.get("kept") or ())
    return Page(taken, pending, released, read_cursors(status), kept.minus(kept.minus(taken)))


def read_cursors(status: Mapping[str, Any]) -> dict[int, int]:
    """What cannot be read is left out: then the search for that length starts anew."""
    cursors = {}
    for text in status.get("roundRobin") or ():
        address, _, length = text.partition("/")
        try:
            cursors[int(length)] = parse_address(address).value
        except ValueError:
            continue
    return cursors


def _pending(text: str) -> tuple[str, Block]:
    uid, _, cidr = text.partition(" ")
    return uid, parse_block(cidr)


def _read(reader: Callable[[str], T], text: str) -> T:
    try:
        return reader(text)
    except InvalidText as error:
        raise InvalidText(
            f"the status has an entry that cannot be read: {error}; correct it, or remove status.taken and "
            "it is made anew (kubectl edit --subresource=status)"
        ) from error


class Draft:
    """The next page, edit by edit. What one edit takes away is not given to another of the same draft."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._taken: list[Range] = []  # in order, and none of them overlaps another or the page
        self._freed: list[Range] = []
        self.pending = dict(page.pending)
        self.released = set(page.released)
        self.cursors = dict(page.cursors)
        self.adopted = False
        self._kept = page.kept
        self._returned: list[Range] = []  # of what was kept: in order, and none overlaps another

    def grant(
        self, uid: str, block: Block, *, moves_cursor: bool = False, is_returning: bool = False
    ) -> bool:
        """False, and nothing changed, if any of it is taken or the request has another block already. Who
        returns may have what is kept."""
        if self.pending.get(uid) == block:
            return True
        if uid in self.pending or uid in self.released:
            return False
        if is_returning and self._kept.contains(block) and not _overlaps(self._returned, block):
            self.pending[uid] = block
            insort(self._returned, block.range, key=_place)
            return True
        if self._page.touches(block) or _overlaps(self._taken, block):
            return False
        self.pending[uid] = block
        insort(self._taken, block.range, key=_place)
        if moves_cursor:
            self._move_cursor(block)
        return True

    def _move_cursor(self, block: Block) -> None:
        after = block.last + 1
        if after > block.family.top:
            self.cursors.pop(block.length, None)
        else:
            self.cursors[block.length] = after

    def release(self, uid: str, blocks: Iterable[Block], shared: Iterable[Block] = ()) -> None:
        """Take a request's blocks off the page, once; what others hold of them too stays."""
        if uid in self.released:
            return
        self.released.add(uid)
        pending = self.pending.pop(uid, None)
        mine = [*blocks, *([] if pending is None else [pending])]
        self._freed += RangeSet(b.range for b in mine).minus(RangeSet(b.range for b in shared))

    def settle(self, uid: str, block: Block) -> Block | None:
        """The request is known to have this block. Returns the one pending for it if that is another: it was
        granted by someone who had not seen the first, and goes back."""
        pending = self.pending.pop(uid)
        if pending == block:
            return None
        self._freed += RangeSet([pending.range]).minus(RangeSet([block.range]))
        return pending

    def abandon(self, uid: str) -> Block | None:
        """The request is gone for certain: what is pending for it goes back."""
        block = self.pending.pop(uid, None)
        if block is not None:
            self._freed.append(block.range)
        return block

    def adopt(self, ranges: RangeSet) -> None:
        """Put on the page what was found in use; with this a page begins."""
        self.adopted = True
        self._taken = sorted([*self._taken, *ranges.minus(self._page.taken.union(self._taken))], key=_place)

    def keep(self, ranges: RangeSet) -> None:
        """Put on the page, for those who had it, what a backup says was taken and nobody has now."""
        taken = self._page.taken.union(self._taken)
        self._kept = self._kept.union(ranges.minus(taken))
        self.adopt(ranges)

    def keep_no_more(self, ranges: RangeSet) -> None:
        """It has a holder; on the page it stays."""
        self._kept = self._kept.minus(ranges)

    def give_back(self, ranges: RangeSet) -> None:
        """Take off the page what was found to be nobody's."""
        self._freed += ranges

    def page(self) -> Page:
        taken = self._page.taken
        if self._freed:
            taken = taken.minus(RangeSet(self._freed))
        if self._taken:
            taken = taken.union(self._taken)
        kept = self._kept
        if kept and (self._returned or self._freed):
            kept = kept.minus(RangeSet([*self._returned, *self._freed]))
        return Page(taken, self.pending, frozenset(self.released), self.cursors, kept)


def _overlaps(ranges: list[Range], block: Block) -> bool:
    """Is any of it in one of these? They are in order, and none overlaps another."""
    at = bisect_right(ranges, (block.family, block.last), key=_place)
    before = ranges[at - 1] if at else None
    return before is not None and before.family is block.family and before.last >= block.first


def _place(item: Range) -> tuple[Family, int]:
    return item.family, item.first
