"""What the ledger is asked and answers, as plain values, one per request; and how its pools are named."""

from __future__ import annotations

import re
from dataclasses import dataclass

from berth.leasing.decide import Refusal
from berth.leasing.holders import Entry
from berth.net.host import canonical
from berth.secret import Secret

POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[46]")


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
class RegisterRequest:
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
class ReleaseRequest:
    """Give a holder's entry an expiry."""

    pool: str
    entry: Entry
    secret: Secret
    address: str | None = None
    otherwise: Refusal | None = None


LedgerRequest = RegisterRequest | ReleaseRequest
LedgerAnswer = Granted | Released | Refusal


def pool_key(zone: str, family: int) -> str:
    return f"{zone}/{int(family)}"


def zone_of(pool: str) -> str:
    return pool.rpartition("/")[0]


def family_of(pool: str) -> int:
    return int(pool.rpartition("/")[2])


def placed(address: str, pool: str) -> tuple[str, str]:
    """A host and the pool it is said to be in, both as the ledger keeps them. ValueError if they do not
    fit.
    """
    family, bare = canonical(address)
    if not POOL.fullmatch(pool) or family_of(pool) != family:
        raise ValueError(f"{address} cannot be in the pool {pool!r}")
    return bare, pool
