"""One host address as text: any accepted spelling in, canonical out. The ledger keeps it bare; people
and clients of the IPAM-API see it with its mask.
"""

from __future__ import annotations

from berth.net.address import Family
from berth.net.parse import parse_block


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


def masked(address: str) -> str:
    """The host CIDR of a stored address."""
    return f"{address}/{128 if ':' in address else 32}"
