"""Which block a claim gets when it does not insist on one: one function per strategy. Nothing is changed
here.

Each function is given what is free (a ground: one family of a pool) and an order, the block's size being
2**order, and returns an address or None.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from berth.leasing.buddy import Buddy
from berth.leasing.free_space import FreeSpace
from berth.leasing.model import Claim, Strategy
from berth.leasing.ordered_ranges import OrderedRanges
from berth.leasing.space import Space
from berth.net import Block

# Any: FIRST and RANDOM work on ranked ground, the others on blockwise ground; `build.py` sees to it.
Chooser = Callable[[Space, Any, int, Random | None], int | None]


def choose(claim: Claim, space: Space, random: Random | None = None) -> Block | None:
    """The block this space would give, from the family the claim names or else the pool prefers."""
    grounds = space.grounds_for(claim.family)
    length = claim.length
    if len(grounds) > 1:
        grounds = _by_rank(grounds, length)
    pick = CHOOSERS[space.pool.strategy]
    for ground in grounds:
        order = 0 if length is None else ground.width - length
        if 0 <= order <= ground.width:
            first = pick(space, ground, order, random)
            if first is not None:
                return ground.block(first, order)
    return None


def _by_rank(grounds: tuple[FreeSpace, ...], length: int | None) -> tuple[FreeSpace, ...]:
    """The family whose first range with room comes first in the pool is asked first."""

    def rank(ground: FreeSpace) -> int:
        return ground.rank_with_room(0 if length is None else ground.width - length)

    return tuple(sorted(grounds, key=rank))


def lowest(_: Space, ground: OrderedRanges, order: int, __: Random | None) -> int | None:
    return ground.lowest(order)


def at_random(space: Space, ground: OrderedRanges, order: int, random: Random | None) -> int | None:
    return ground.at_random(order, random or space.random or Random())


def best_fit(_: Space, ground: Buddy, order: int, __: Random | None) -> int | None:
    return ground.blocks.best_fit(order)


def round_robin(space: Space, ground: Buddy, order: int, _: Random | None) -> int | None:
    """Best fit from where the last block of this length ended, else best fit over everything."""
    cursor = space.cursors.get(ground.width - order, 0)
    first = ground.blocks.best_fit(order, cursor)
    return ground.blocks.best_fit(order) if first is None and cursor else first


CHOOSERS: dict[Strategy, Chooser] = {
    Strategy.FIRST: lowest,
    Strategy.RANDOM: at_random,
    Strategy.BEST_FIT: best_fit,
    Strategy.ROUND_ROBIN: round_robin,
}
