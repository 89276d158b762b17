"""What decisions are about: pools, claims, leases, and the decisions themselves. Values only, no behaviour.

`Claim`, `Lease` and `Grant` are tuples rather than dataclasses: every decision makes them, and a tuple is
made three times as fast as a frozen dataclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from berth.net import Block, Family, Range


class Strategy(StrEnum):
    """Which block a claim gets when it does not insist on one."""

    FIRST = "first"  # ranges in their order, lowest first
    RANDOM = "random"  # ranges in their order, in one of them from a random address on
    BEST_FIT = "best-fit"  # the smallest free block that serves, lowest first (kubipam's FirstMatch)
    ROUND_ROBIN = "round-robin"  # the same, from where the last one of that length ended


class Reason(StrEnum):
    """Why a claim is refused: the same word in conditions, Events, HTTP bodies, metrics and logs."""

    POOL_EXHAUSTED = "PoolExhausted"
    TOO_LARGE = "TooLarge"  # no pool could serve this length even if it were empty
    INVALID_LENGTH = "InvalidLength"  # the family has no such length
    FAMILY_ABSENT = "FamilyAbsent"  # no pool has a range of the family
    NO_POOL = "NoPool"
    PIN_TAKEN = "PinTaken"  # leased to, or reserved for, another
    PIN_OUTSIDE = "PinOutside"  # in no pool, or excluded
    PIN_CONFLICT = "PinConflict"  # the claim insists on something else than it asks for, or has reserved
    RESERVATION_OUTSIDE = "ReservationOutside"
    RESERVATION_TAKEN = "ReservationTaken"
    QUOTA_EXCEEDED = "QuotaExceeded"
    # Of addresses that several holders share (holders.py):
    NO_MATCH = "NoMatch"
    NOT_HOLDER = "NotHolder"
    SEVERAL_HOLDERS = "SeveralHolders"
    OTHER_HOLDER = "OtherHolder"
    CLUSTER_FROZEN = "ClusterFrozen"
    UNKNOWN_ZONE = "UnknownZone"  # NO_POOL, in the IPAM-API's words


@dataclass(frozen=True, slots=True)
class Pool:
    """Named, ordered ranges with rules. Ranges may overlap (the earlier has it) and mix families."""

    name: str
    ranges: tuple[Range, ...] = ()
    exclusions: tuple[Range, ...] = ()
    reservations: Mapping[str, Block] = field(default_factory=dict, hash=False)
    strategy: Strategy = Strategy.FIRST


class Quota(NamedTuple):
    """How many blocks of a pool the holder's group (its cluster) may have, and how many it has."""

    limit: int
    used: int


class Claim(NamedTuple):
    """What somebody asks for: one block. A holder may have several claims, one per family."""

    holder: str  # unique key of who asks
    name: str = ""  # key into the pools' reservations
    family: Family | None = None  # None: whichever the pool prefers
    length: int | None = None  # None: one address
    pin: Block | None = None  # exactly this block or none
    quota: Quota | None = None  # None: as many as there are


class Lease(NamedTuple):
    """The record that a block is taken."""

    block: Block
    holder: str
