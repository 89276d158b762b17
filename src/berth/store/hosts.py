"""One host address as text: any accepted spelling in, canonical out. The store keeps it bare; people
and clients see it with its mask.
"""

from __future__ import annotations

import re

from berth.net import Family, parse_block
from berth.store.requests import family_of

POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[46]")


def canonical(text: str) -> tuple[Family, str]:
    """Family and canonical text without mask. ValueError for a net, a mapped address, a zone id and the
    like.
    """
    address, slash, length = text.partition("/")
    block = parse_block(address)
    mapped = ":" in address and block.family is Family.V4
    if mapped or (slash and length != str(block.family.width)):
        raise ValueError(text)
    return block.family, block.address


def placed(address: str, pool: str) -> tuple[str, str]:
    """A host and the pool it is said to be in, both as the ledger keeps them. ValueError if they do not
    fit.
    """
    family, bare = canonical(address)
    if not POOL.fullmatch(pool) or family_of(pool) != family:
        raise ValueError(f"{address} cannot be in the pool {pool!r}")
    return bare, pool


def masked(address: str) -> str:
    """The host CIDR of a stored address."""
    return f"{address}/{128 if ':' in address else 32}"
