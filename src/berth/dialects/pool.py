"""A pool at work: its space, who waits for it, and when they are woken.

One desk per pool object. Claims that were refused leave their name here instead of asking again and again:
when an address comes free, the oldest of them is woken, and whoever waits for that very address; each that is
served wakes the next while there is room. A waiting claim costs nothing until then.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from typing import Any

from berth.kube.meta import Ref
from berth.leasing.model import Pool
from berth.leasing.space import SOMEONE, Space
from berth.net import Block

Order = tuple[str, str, Ref]  # creation time, name: the oldest claim is served first


class Desk:
    def __init__(self, pool: Pool, wake: Callable[[Ref], None]) -> None:
        self.space = Space(pool)
        self._wake = wake
        self._line: list[Order] = []
        self._in_line: dict[Ref, Order] = {}
        self._pinned: dict[Ref, Block] = {}

    def edit(self, pool: Pool) -> None:
        """The pool's spec changed: the same leases in the new space; everyone who waits may look again."""
        self.space.edit(pool)
        self.wake_all()

    def adopt(self, block: Block, holder: str) -> str | None:
        """Record what was found taken. Returns the other holder who has it too, if there is one."""
        other = self.space.holder_of(block)
        self.space.adopt(block, holder)
        return other if other not in (None, holder, SOMEONE) else None

    def free(self, block: Block, holder: str) -> None:
        if self.space.release(block, holder):
            self._freed(block)

    def wait(self, claim: dict[str, Any], ref: Ref, pin: Block | None) -> None:
        """Remember a refused claim until something comes free."""
        if pin is not None:
            self._pinned[ref] = pin
        elif ref not in self._in_line:
            meta = claim["metadata"]
            order = (meta.get("creationTimestamp", ""), meta["name"], ref)
            self._in_line[ref] = order
            insort(self._line, order)

    def leave(self, ref: Ref) -> None:
        """The claim is served or gone. If it leaves with space to spare, the next in line may have it."""
        self._pinned.pop(ref, None)
        order = self._in_line.pop(ref, None)
        if order is not None:
            self._line.remove(order)
            self._wake_next()

    def waits(self, ref: Ref) -> bool:
        return ref in self._in_line or ref in self._pinned

    def wake_all(self) -> None:
        self._ring([*self._pinned, *(ref for *_, ref in self._line)])

    def _freed(self, block: Block) -> None:
        self._ring([ref for ref, pin in self._pinned.items() if pin.overlaps(block)])
        self._wake_next()

    def _wake_next(self) -> None:
        if self._line and self.space.usage().free:
            self._wake(self._line[0][2])

    def _ring(self, refs: Iterable[Ref]) -> None:
        for ref in refs:
            self._wake(ref)
