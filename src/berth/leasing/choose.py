"""Which block a claim gets when it does not insist on one: one function per strategy. Nothing is changed
here.

Each function is given what is free (a `Ground`, one family of a pool) and an order, the block's size being
2**order, and returns a place or None. Costs are logarithmic at most, whatever the pool's size and fill.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from random import Random

from berth.leasing.ground import Ground
from berth.leasing.model import Claim, Strategy
from berth.leasing.space import Space
from berth.net import Block

Chooser = Callable[[Space, Ground, int, Random | None], int | None]


def choose(claim: Claim, space: Space, random: Random | None = None) -> Block | None:
    """The block this space would give, from the family the claim names or else the pool prefers."""
    grounds = space.grounds_for(claim.family)
    if len(grounds) == 1:
        ground = grounds[0]
        place = _place(claim.length, space, ground, random)
        return None if place is None else ground.block_of(place, claim.length)
    found = [(_place(claim.length, space, ground, random), ground) for ground in grounds]
    best = min(
        ((place >> ground.width, place, ground) for place, ground in found if place is not None),
        key=itemgetter(0),
        default=None,
    )
    return None if best is None else best[2].block_of(best[1], claim.length)


def _place(length: int | None, space: Space, ground: Ground, random: Random | None) -> int | None:
    order = 0 if length is None else ground.width - length
    if not 0 <= order <= ground.width:
        return None
    return CHOOSERS[space.pool.strategy](space, ground, order, random)


def first(space: Space, ground: Ground, order: int, random: Random | None) -> int | None:
    return ground.lowest(order)


def at_random(space: Space, ground: Ground, order: int, random: Random | None) -> int | None:
    """metal3's rule: in the first range with room, the next from a random address on, wrapping at its end."""
    lowest = ground.lowest(order)
    if lowest is None:
        return None
    index = lowest >> ground.width
    chosen = space.pool.ranges[index]
    start = chosen.first + _below(chosen.size, random or space.random or Random())
    place = ground.lowest(order, (index << ground.width) + start)
    return lowest if place is None or place >> ground.width != index else place


def best_fit(space: Space, ground: Ground, order: int, random: Random | None) -> int | None:
    return ground.blocks.best_fit(order)


def round_robin(space: Space, ground: Ground, order: int, random: Random | None) -> int | None:
    """Best fit from where the last block of this length ended, else best fit over everything."""
    cursor = space.cursors.get(ground.width - order, 0)
    place = ground.blocks.best_fit(order, cursor)
    return ground.blocks.best_fit(order) if place is None and cursor else place


def _below(bound: int, random: Random) -> int:
    """Evenly among 0..bound-1, for bounds beyond what floats can count."""
    bits = (bound - 1).bit_length()
    number = random.getrandbits(bits)
    while number >= bound:
        number = random.getrandbits(bits)
    return number


CHOOSERS: dict[Strategy, Chooser] = {
    Strategy.FIRST: first,
    Strategy.RANDOM: at_random,
    Strategy.BEST_FIT: best_fit,
    Strategy.ROUND_ROBIN: round_robin,
}
