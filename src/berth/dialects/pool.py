"""A pool at work: its space, who waits for it, and when they are woken.

One desk per pool object. Claims that were refused leave their name here instead of asking again and again:
when an address comes free, the oldest of them is woken, and whoever waits for that very address; each that is
served wakes the next while there is room. A waiting claim costs nothing until then. Claims for blocks of
different lengths stand in different lines: whoever waits for a large block holds up none of the small ones.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from typing import Any

from berth.kube.meta import Ref
from berth.leasing.choose import choose
from berth.leasing.model import Claim, Pool
from berth.leasing.space import UNKNOWN_HOLDER, Space
from berth.net import Block

Order = tuple[str, str, Ref]  # creation time, name: the oldest claim is served first


class Desk:
    def __init__(self, pool: Pool, wake: Callable[[Ref], None]) -> None:
        self.space = Space(pool)
        self._wake = wake
        self._lines: dict[int | None, list[Order]] = {}  # by the length waited for; None: one address
        self._in_line: dict[Ref, tuple[int | None, Order]] = {}
        self._pinned: dict[Ref, Block] = {}

    def edit(self, pool: Pool) -> None:
        """The pool's spec changed: the same leases in the new space; everyone who waits may look again."""
        self.space.edit(pool)
        self.wake_all()

    def adopt(self, block: Block, holder: str) -> str | None:
        """Record what was found taken. Returns the other holder who has it too, if there is one."""
        other = self.space.holder_of(block)
        self.space.adopt(block, holder)
        return other if other not in (None, holder, UNKNOWN_HOLDER) else None

    def free(self, block: Block, holder: str) -> None:
        if self.space.release(block, holder):
            self._freed(block)

    def wait(self, claim: dict[str, Any], ref: Ref, pin: Block | None, length: int | None = None) -> None:
        """Remember a refused claim until something comes free. Who asks for something else by now, an address
        of its own or another length, leaves its line: at its head it would hold up those behind."""
        if ref in self._in_line and (pin is not None or self._in_line[ref][0] != length):
            self.leave(ref)
        if pin is not None:
            self._pinned[ref] = pin
        elif ref not in self._in_line:
            meta = claim["metadata"]
            order = (meta.get("creationTimestamp", ""), meta["name"], ref)
            self._in_line[ref] = (length, order)
            insort(self._lines.setdefault(length, []), order)

    def leave(self, ref: Ref) -> None:
        """The claim is served or gone. If it leaves with space to spare, the next in line may have it."""
        self._pinned.pop(ref, None)
        if ref in self._in_line:
            length, order = self._in_line.pop(ref)
            self._lines[length].remove(order)
            if self._lines[length]:
                self._wake_first(length)
            else:
                del self._lines[length]

    def waits(self, ref: Ref) -> bool:
        return ref in self._in_line or ref in self._pinned

    def wake_all(self) -> None:
        self._ring([*self._pinned, *(ref for line in self._lines.values() for *_, ref in line)])

    def _freed(self, block: Block) -> None:
        self._ring([ref for ref, pin in self._pinned.items() if pin.overlaps(block)])
        for length in list(self._lines):
            self._wake_first(length)

    def _wake_first(self, length: int | None) -> None:
        if self._has_room(length):
            self._wake(self._lines[length][0][2])

    def _has_room(self, length: int | None) -> bool:
        if length is None:
            return self.space.usage().free > 0
        return choose(Claim("", length=length), self.space) is not None

    def _ring(self, refs: Iterable[Ref]) -> None:
        for ref in refs:
            self._wake(ref)
