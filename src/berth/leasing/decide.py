"""A claim and the spaces it may be served from become a decision: grant, keep, or a refusal with its reason.

All dialects and the HTTP API ask here. Pure: nothing is changed, the same input gives the same decision (with
RANDOM: the same state of `random`). The caller takes a grant in memory at once, before it awaits anything:

    match decide(claim, spaces):
        case Grant() as grant: grant.take()      # then commit it to the ledger
        case Keep(): ...                         # the holder has what it asks for
        case Refusal(reason=reason): ...

In order: what the holder has, whether it may have more, what is reserved for it, what it insists on, what the
strategy gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypeAlias

from berth.leasing.choose import choose
from berth.leasing.model import Claim, Reason
from berth.leasing.space import Space
from berth.net import Block


class Grant(NamedTuple):
    """A block that is free now, for the claim's holder."""

    space: Space
    block: Block
    holder: str
    chosen: bool = True  # by the strategy, not by a pin or a reservation

    def take(self) -> None:
        """Take the block in memory, and move the round robin's cursor if that chose it."""
        space, block = self.space, self.block
        space.take(block, self.holder)
        if space.goes_round and self.chosen:
            space.move_cursor(block)


@dataclass(frozen=True, slots=True)
class Keep:
    """The holder has a block that is what the claim asks for."""

    space: Space
    block: Block


@dataclass(frozen=True, slots=True)
class Refusal:
    """A no: of `decide`, and of the rules for addresses that several holders share (holders.py)."""

    reason: Reason
    detail: str = ""  # one sentence for people
    holder: str | None = None  # who has the block, where that is the reason
    missed: bool = False  # of the IPAM-API: the secret opens not all that the holder has in this pool


Decision: TypeAlias = Grant | Keep | Refusal


def decide(claim: Claim, spaces: Sequence[Space], random: Random | None = None) -> Decision:
    for space in spaces:
        for block in space.leases_of(claim.holder):
            if fits(claim, block):
                return Keep(space, block)
    if claim.quota is not None and claim.quota.used >= claim.quota.limit:
        return Refusal(Reason.QUOTA_EXCEEDED, f"{claim.quota.used} of {claim.quota.limit} blocks are in use")
    if claim.name:
        for space in spaces:
            reserved = space.pool.reservations.get(claim.name)
            if reserved is not None and _asks_for(claim, reserved):
                return _reserved(claim, space, reserved)
    if claim.pin is not None:
        return _pinned(claim, claim.pin, spaces)
    for space in spaces:
        chosen = choose(claim, space, random)
        if chosen is not None:
            return Grant(space, chosen, claim.holder)
    return _nothing(claim, spaces)


def fits(claim: Claim, block: Block) -> bool:
    """Is this block what the claim asks for?"""
    family, pin = claim.family, claim.pin
    if pin is not None:
        return block == pin
    if family is not None and block.family != family:
        return False
    return block.is_address if claim.length is None else block.length == claim.length


def _asks_for(claim: Claim, reserved: Block) -> bool:
    """A claim that names neither family nor length gets its reservation as it is."""
    return claim.family in (None, reserved.family) and claim.length in (None, reserved.length)


def _reserved(claim: Claim, space: Space, block: Block) -> Decision:
    if claim.pin is not None and claim.pin != block:
        return Refusal(
            Reason.PIN_CONFLICT, f"{claim.pin} was asked for, but {block} is reserved for {claim.name}"
        )
    if not space.contains(block):
        return Refusal(
            Reason.RESERVATION_OUTSIDE, f"{block}, reserved for {claim.name}, is not in {space.pool.name}"
        )
    holder = space.holder_of(block)
    if holder is not None:
        return Refusal(
            Reason.RESERVATION_TAKEN, f"{block}, reserved for {claim.name}, is taken by {holder}", holder
        )
    return Grant(space, block, claim.holder, chosen=False)


def _pinned(claim: Claim, pin: Block, spaces: Sequence[Space]) -> Decision:
    if not _asks_for(claim, pin):
        return Refusal(Reason.PIN_CONFLICT, f"{pin} is not of the family or length asked for")
    for space in spaces:
        if space.is_free(pin):
            return Grant(space, pin, claim.holder, chosen=False)
    for space in spaces:
        if space.contains(pin):
            holder = space.holder_of(pin)
            why = f"taken by {holder}" if holder else "reserved"
            return Refusal(Reason.PIN_TAKEN, f"{pin} is {why}", holder)
    return Refusal(Reason.PIN_OUTSIDE, f"{pin} is in no pool that serves this claim")


def _nothing(claim: Claim, spaces: Sequence[Space]) -> Refusal:
    """Why did no space give anything? The reason that would take most to change comes first."""
    if not spaces:
        return Refusal(Reason.NO_POOL, "there is no pool to serve this claim")
    names = ", ".join(space.pool.name for space in spaces)
    grounds = [ground for space in spaces for ground in space.grounds_for(claim.family)]
    if not grounds and claim.family is not None:
        return Refusal(Reason.FAMILY_ABSENT, f"{names} has no range of IPv{claim.family:d}")
    if grounds and claim.length is not None:
        orders = [(ground.width - claim.length, ground) for ground in grounds]
        possible = [(order, ground) for order, ground in orders if 0 <= order <= ground.width]
        if not possible:
            return Refusal(Reason.INVALID_LENGTH, f"{names} has no blocks of length {claim.length}")
        if all(order > ground.roomiest for order, ground in possible):
            return Refusal(Reason.TOO_LARGE, f"no range of {names} can hold a block of length {claim.length}")
    return Refusal(Reason.POOL_EXHAUSTED, f"{names} has no free block left for this claim")
