"""Why there is no address: upstream's text, then which pools were tried and why each said no. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from berth.dialects.vip.pools import OpenSegment, Shelf
from berth.dialects.vip.translate import NOT_AVAILABLE, SPECIFIC
from berth.leasing.model import Claim
from berth.net import Block

NOTHING = "no IP could be allocated"
MOST_NAMED = 8  # an Event has room for so many


def literal(shelf: Shelf, kind: str, claim: Claim) -> str:
    """Upstream's text, word for word."""
    if claim.pin is None:
        return NOTHING
    return NOT_AVAILABLE if shelf.covering(claim.pin) else f"{SPECIFIC}{not_found(kind)}"


def not_found(kind: str) -> str:
    return f"{kind} not found for the requested ip"


def refusal(shelf: Shelf, kind: str, claim: Claim) -> str:
    pools = list(shelf)
    if not pools:
        return f"{literal(shelf, kind, claim)} (there is no {kind})"
    told = [f"{pool.segment.name}: {why}" for pool, why in _why(pools, claim)]
    left = len(pools) - len(told)
    more = f"; and {left} more" if left else ""
    return f"{literal(shelf, kind, claim)} (tried {'; '.join(told)}{more})"


def _why(pools: list[OpenSegment], claim: Claim) -> Iterator[tuple[OpenSegment, str]]:
    """Those that come closest to serving it are named first, since not all may fit."""
    told = [(pool, _reason(pool, claim)) for pool in pools]
    yield from sorted(told, key=lambda pair: pair[1].startswith("has no"))[:MOST_NAMED]


def _reason(pool: OpenSegment, claim: Claim) -> str:
    if pool.segment.fault is not None:
        return pool.segment.fault
    if pool.closing:
        return "being deleted"
    family = claim.family
    if family is not None and not pool.desk.space.grounds_for(family):
        whole = pool.segment.range
        is_excluded = whole is not None and whole.family is family
        return "all its addresses are excluded" if is_excluded else f"has no IPv{family:d} addresses"
    if claim.pin is not None:
        return _pin_reason(pool, claim.pin)
    return f"all {pool.desk.space.usage().total} addresses are in use"


def _pin_reason(pool: OpenSegment, pin: Block) -> str:
    if not pool.segment.covers(pin):
        return "has no such address"
    if not pool.desk.space.contains(pin):
        return f"{pin.address} is excluded"
    holder = pool.desk.space.holder_of(pin)
    return f"{pin.address} is held by {holder}" if holder else f"{pin.address} is being released"
