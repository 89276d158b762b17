"""Who holds what: leases found by block, by holder, and by what they overlap.

Filed by family, length and first address, as ints: a dictionary of ints in address order is kinder to memory
than one of blocks. Leases of one book never overlap each other; blocks being nested or apart, a lease that
overlaps a block either holds it (one look per length in use) or starts inside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from berth.leasing.model import Lease
from berth.net import Block, Family


class Leases:
    __slots__ = ("_blocks", "_holders")

    def __init__(self) -> None:
        self._holders: dict[int, dict[int, dict[int, str]]] = {family: {} for family in Family}
        self._blocks: dict[str, Block | list[Block]] = {}  # a list only for holders of several

    def __iter__(self) -> Iterator[Lease]:
        for family in Family:
            for length, holders in self._holders[family].items():
                for first, holder in holders.items():
                    yield Lease(Block(family, first, length), holder)

    def holder_at(self, block: Block) -> str | None:
        """Who holds exactly this block?"""
        family, first, length = block
        holders = self._holders[family].get(length)
        return None if holders is None else holders.get(first)

    def of(self, holder: str) -> tuple[Block, ...]:
        found = self._blocks.get(holder)
        if found is None:
            return ()
        return tuple(found) if type(found) is list else (found,)  # type: ignore[return-value]

    def add(self, block: Block, holder: str) -> None:
        """The block must not overlap a lease."""
        family, first, length = block
        holders = self._holders[family].get(length)
        if holders is None:
            holders = self._holders[family][length] = {}
        holders[first] = holder
        if self._blocks.setdefault(holder, block) is not block:
            self._note_another(block, holder)

    def remove(self, block: Block, holder: str) -> None:
        """The block must be this holder's."""
        family, first, length = block
        holders = self._holders[family][length]
        del holders[first]
        if not holders:
            del self._holders[family][length]
        self.forget(block, holder)

    def note(self, block: Block, holder: str) -> None:
        """File by holder only."""
        if self._blocks.setdefault(holder, block) is not block:
            self._note_another(block, holder)

    def _note_another(self, block: Block, holder: str) -> None:
        found = self._blocks[holder]
        if isinstance(found, list):
            found.append(block)
        else:
            self._blocks[holder] = [found, block]

    def forget(self, block: Block, holder: str) -> None:
        found = self._blocks.pop(holder)
        if isinstance(found, list):
            found.remove(block)
            self._blocks[holder] = found if len(found) > 1 else found[0]

    def holding(self, block: Block) -> Lease | None:
        """The lease that holds all of this block."""
        family, first, length = block
        width = family.width
        for held, holders in self._holders[family].items():
            if held <= length:
                start = first >> (width - held) << (width - held)
                holder = holders.get(start)
                if holder is not None:
                    return Lease(Block(family, start, held), holder)
        return None

    def starting_at(self, family: Family, first: int) -> Lease | None:
        for length, holders in self._holders[family].items():
            holder = holders.get(first)
            if holder is not None:
                return Lease(Block(family, first, length), holder)
        return None

    def overlapping(self, block: Block) -> Iterator[Lease]:
        """Every lease that overlaps the block: one that holds it, or those inside."""
        holding = self.holding(block)
        if holding is not None:
            yield holding
            return
        for length, holders in self._holders[block.family].items():
            if length > block.length:
                step = 1 << (block.family.width - length)
                places = range(block.first, block.last + 1, step)
                # Look at the fewer: the places where a lease of this length could start, or all such leases.
                few = (
                    places
                    if block.size // step < len(holders)
                    else [first for first in holders if first in places]
                )
                for first in few:
                    if first in holders:
                        yield Lease(Block(block.family, first, length), holders[first])
