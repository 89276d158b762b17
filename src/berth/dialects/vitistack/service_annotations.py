"""What a Service's annotations ask for, read once and checked. Pure.

Both spellings of an address count (`83.118.168.10` and `83.118.168.10/32`, blanks around commas); addresses
are compared as addresses, never as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from berth.dialects.vitistack import kinds, messages
from berth.dialects.vitistack.messages import No
from berth.net import Address, Family, parse_address
from berth.net.host import canonical

TRUE = frozenset(("1", "t", "T", "true", "True", "TRUE"))
FALSE = frozenset(("0", "f", "F", "false", "False", "FALSE"))
NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
MOST_DAYS = 30
MOST_KEY = 256  # bytes; what we make ourselves has 47
MOST_NAME = 253  # as Kubernetes has it, for the names of pools and Secrets
MOST_PARTS = 16  # of a list of addresses that is looked at; two is what fits


class Families(StrEnum):
    """The annotation's three words."""

    IPV4 = "ipv4"
    IPV6 = "ipv6"
    DUAL = "dual"

    @property
    def wanted(self) -> tuple[Family, ...]:
        """In the order they are asked for."""
        return {"ipv4": (Family.V4,), "ipv6": (Family.V6,), "dual": (Family.V4, Family.V6)}[self]

    @property
    def policy(self) -> str:
        return "RequireDualStack" if self is Families.DUAL else "SingleStack"


@dataclass(frozen=True, slots=True)
class Terms:
    """What the IPAM-API keeps with an entry; a change is sent."""

    retention_days: int = 0
    deny: bool = False


@dataclass(frozen=True, slots=True)
class ServiceWish:
    zone: str
    families: Families
    addresses: tuple[Address, ...]
    key: str
    secret: str
    terms: Terms

    @property
    def missing(self) -> tuple[Family, ...]:
        there = {address.family for address in self.addresses}
        return tuple(family for family in self.families.wanted if family not in there)


def read(annotations: Mapping[str, str], name: str) -> ServiceWish:
    """Everything checked; annotations must be complete but for the addresses."""
    addresses = read_addresses(annotations.get(kinds.ADDRESSES, ""), name)
    families = read_families(annotations.get(kinds.FAMILY, ""))
    zone, secret = annotations.get(kinds.ZONE, ""), annotations.get(kinds.SECRET_NAME, "")
    if not zone:
        raise No(f"annotation {kinds.ZONE} of Service {name} is empty: name a zone, or leave it out")
    if not secret:
        raise No(f"annotation {kinds.SECRET_NAME} of Service {name} is empty: name a Secret, or leave it out")
    for key, most in ((kinds.SHARING_KEY, MOST_KEY), (kinds.ZONE, MOST_NAME), (kinds.SECRET_NAME, MOST_NAME)):
        if len(annotations.get(key, "").encode()) > most:
            raise No(f"annotation {key} of Service {name} is too long: at most {most} bytes")
    terms = Terms(
        read_retention(annotations.get(kinds.RETENTION, "")), read_deny(annotations.get(kinds.DENY, ""), name)
    )
    wish = ServiceWish(zone, families, addresses, annotations.get(kinds.SHARING_KEY, ""), secret, terms)
    _refuse_misfits(wish, name)
    return wish


def _refuse_misfits(wish: ServiceWish, name: str) -> None:
    for address in wish.addresses:
        if address.family not in wish.families.wanted:
            raise No(
                f"the family of address {address} does not fit {kinds.FAMILY}: {wish.families} "
                f"of Service {name}"
            )


def read_addresses(text: str, name: str) -> tuple[Address, ...]:
    parts = text.split(",", MOST_PARTS)
    found = tuple(_address(part.strip(), name) for part in parts[:MOST_PARTS]) if text.strip() else ()
    if len({address.family for address in found}) < len(parts) and found:
        raise No(messages.ONE_PER_FAMILY)
    return found


def _address(text: str, name: str) -> Address:
    try:
        return _parsed(text)
    except ValueError:
        raise No(messages.invalid_address(name, text[:100])) from None


@lru_cache(maxsize=8192)
def _parsed(text: str) -> Address:
    """The same few texts again and again: in an object, in the next version of it, in its record."""
    return parse_address(canonical(text)[1])


def read_families(word: str) -> Families:
    try:
        return Families(word)
    except ValueError:
        raise No(messages.unknown_family(word)) from None


def read_retention(text: str) -> int:
    if not NUMBER.fullmatch(text):
        raise No(messages.BAD_RETENTION)
    days = int(text)
    if not 0 <= days <= MOST_DAYS:
        raise No(messages.RETENTION_OVER if days > 0 else messages.RETENTION_UNDER)
    return days


def read_deny(text: str, name: str) -> bool:
    if text not in TRUE | FALSE:
        raise No(messages.bad_deny(name))
    return text in TRUE


# What a stored Service says, whoever wrote it: what cannot be read is left out.


def listed(annotations: Mapping[str, str]) -> tuple[Address, ...]:
    found: dict[Family, Address] = {}
    for part in annotations.get(kinds.ADDRESSES, "").split(",", MOST_PARTS)[:MOST_PARTS]:
        try:
            address = _parsed(part.strip())
        except ValueError:
            continue
        found.setdefault(address.family, address)
    return tuple(found.values())


def terms_or_none(annotations: Mapping[str, str]) -> Terms | None:
    """None where an older operator let something through that is no value."""
    try:
        deny = read_deny(annotations.get(kinds.DENY, "false"), "")
        return Terms(read_retention(annotations.get(kinds.RETENTION, "0")), deny)
    except No:
        return None


def same(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Whether nothing changed that concerns the IPAM-API or MetalLB. Order and spelling are no change."""
    return _compared(old) == _compared(new)


def _compared(annotations: Mapping[str, str]) -> tuple[object, ...]:
    plain = (kinds.ZONE, kinds.SECRET_NAME, kinds.FAMILY, kinds.SHARING_KEY)
    terms = terms_or_none(annotations)
    raw = (annotations.get(kinds.RETENTION), annotations.get(kinds.DENY)) if terms is None else None
    try:
        addresses: object = frozenset(read_addresses(annotations.get(kinds.ADDRESSES, ""), ""))
    except No:
        addresses = annotations.get(kinds.ADDRESSES)
    return (*(annotations.get(key) for key in plain), terms, raw, addresses)


# Text


def written(addresses: Iterable[Address], *, bare: bool) -> str:
    return ",".join(str(one) if bare else host(one) for one in addresses)


def host(address: Address) -> str:
    """The host CIDR."""
    return f"{address}/{address.family.width}"
