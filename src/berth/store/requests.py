"""What the ledger is asked, and what it answers: plain values, one per request."""

from __future__ import annotations

from dataclasses import dataclass

from berth.leasing.decide import Refusal
from berth.leasing.holders import Entry
from berth.secret import Secret


@dataclass(frozen=True, slots=True)
class Granted:
    """The holder is on this address; `fresh` when the address was free before. `missed`: no address was
    named, and the secret opens not all that the holder has in this pool.
    """

    address: str
    fresh: bool
    missed: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """The holder's entry on this address has an expiry now."""

    address: str


@dataclass(frozen=True, slots=True)
class Register:
    """Put a holder on an address: a certain one, the one it is on already, or the next free."""

    pool: str
    entry: Entry
    secret: Secret
    address: str | None = None
    new_secret: Secret | None = None
    pending: bool = False
    otherwise: Refusal | None = None  # the answer unless a stored address matches (zone or prefix is gone)
    only_marked_by: str = ""  # change an entry only as long as this is who set its expiry


@dataclass(frozen=True, slots=True)
class Release:
    """Give a holder's entry an expiry."""

    pool: str
    entry: Entry
    secret: Secret
    address: str | None = None
    otherwise: Refusal | None = None


Wish = Register | Release
Answer = Granted | Released | Refusal


def pool_key(zone: str, family: int) -> str:
    return f"{zone}/{int(family)}"


def zone_of(pool: str) -> str:
    return pool.rpartition("/")[0]


def family_of(pool: str) -> int:
    return int(pool.rpartition("/")[2])
