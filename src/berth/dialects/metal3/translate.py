"""IPPool objects ↔ our values. Pure.

One definition of what an entry contains (`entry_range`) serves allocation, admission and usage alike, so that
a pool can never hand out an address which it later calls out of bounds.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from berth.errors import InvalidText
from berth.leasing.build import shares_of
from berth.leasing.decide import Refusal
from berth.leasing.model import Pool, Reason, Strategy
from berth.net import Block, Family, Range, parse_block
from berth.net.parse import parse_host, readable

Object = dict[str, Any]
NAME_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*-*")
LONGEST_NAME_PREFIX = 253 - len("-") - len("ffff-ffff-ffff-ffff-ffff-ffff-ffff-ffff")

NOT_CREATED = "Failed to create associated IPAddress object"
MESSAGES = {
    Reason.PIN_CONFLICT: "PreAllocation and requested ip address are conflicting",
    Reason.PIN_TAKEN: "Requested IP not available",
    Reason.PIN_OUTSIDE: "Exhausted IP Pools",  # clients match this text also for an address outside the pools
    Reason.RESERVATION_OUTSIDE: "Pre-allocated IP out of bounds",
    Reason.RESERVATION_TAKEN: "Pre-allocated IP not available",
    Reason.POOL_EXHAUSTED: "Exhausted IP Pools",
}


@dataclass(frozen=True, slots=True)
class Netconfig:
    """Handed on with an address, never computed with."""

    prefix: int | None
    gateway: str | None
    dns_servers: tuple[str, ...]


class Share(NamedTuple):
    """Addresses that an entry of `spec.pools` has for itself, and what goes with them."""

    range: Range
    netconfig: Netconfig


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """An IPPool's spec, read once: the pool as the engine sees it, and shares in the order of addresses."""

    pool: Pool
    shares: tuple[Share, ...]
    name_prefix: str
    netconfig: Netconfig = Netconfig(None, None, ())  # of the pool as a whole

    def netconfig_of(self, block: Block) -> Netconfig:
        """The first entry that contains the address decides, also for requested and pre-allocated ones."""
        at = bisect_right(self.shares, (block.family, block.first), key=_place) - 1
        if at >= 0 and contains(self.shares[at].range, block):
            return self.shares[at].netconfig
        return self.netconfig

    def address_name(self, block: Block) -> str:
        return address_name(self.name_prefix, block.address)


def read_pool(obj: Object) -> PoolSpec:
    """Raises InvalidText, naming the field, where admission was bypassed."""
    spec = obj.get("spec") or {}
    ranges, netconfigs = _entries(spec)
    meta = obj["metadata"]
    pool = Pool(
        name=f"{meta.get('namespace', '')}/{meta['name']}",
        ranges=ranges,
        reservations={name: parse_block(text) for name, text in (spec.get("preAllocations") or {}).items()},
        strategy=Strategy.RANDOM if spec.get("allocationStrategy") == "random" else Strategy.FIRST,
    )
    shares = sorted((Share(piece.range, netconfigs[piece.rank]) for piece in shares_of(pool)), key=_place)
    return PoolSpec(pool, tuple(shares), spec.get("namePrefix", ""), _netconfig(spec, {}))


def entry_range(entry: Mapping[str, Any]) -> Range | None:
    """First and last address of one entry; None where it has none.

    `start` counts from itself; without it a subnet starts after the literal address it was written with, so
    192.168.1.1/26 begins at .2. The last one is the smallest of `end` and the subnet's last.
    """
    start, end, subnet = (entry.get(key) or "" for key in ("start", "end", "subnet"))
    if not start and not subnet:
        return None
    return bounded(
        parse_host(start) if start else None,
        parse_host(end) if end else None,
        (parse_block(subnet), parse_host(subnet.partition("/")[0])) if subnet else None,
    )


def bounded(start: Block | None, end: Block | None, subnet: tuple[Block, Block] | None) -> Range | None:
    """The same of an entry that is read already; of a subnet also the address it was written with."""
    if start is None and subnet is None:
        return None
    family, first = (start.family, start.first) if start is not None else _after(subnet)
    last = family.top
    if end is not None:
        if end.family is not family:
            return None
        last = end.first
    if subnet is not None:
        block = subnet[0]
        if block.family is not family or not block.first <= first <= block.last:
            return None
        last = min(last, block.last)
    return readable(Range(family, first, last), "invalid range") if first <= last else None


def contains(range: Range, block: Block) -> bool:
    return range.family is block.family and range.first <= block.first and block.last <= range.last


def address_name(name_prefix: str, address: str) -> str:
    """The object's name: what makes a second object for one address impossible."""
    return f"{name_prefix}-{address.replace('.', '-').replace(':', '-')}".rstrip("-")


def addresses_of_name(name_prefix: str, name: str) -> list[Block]:
    """The addresses whose object has this name: none, one, or, as 10.0.0.1 and 10:0:0:1::, one per family."""
    groups = name.removeprefix(f"{name_prefix}-")
    colons = groups.replace("-", ":")
    found = []
    for text in (groups.replace("-", "."), colons, f"{colons}::", "::"):
        try:
            block = parse_block(text)
        except InvalidText:
            continue
        if address_name(name_prefix, block.address) == name:
            found.append(block)
    return found


def refusal_message(refusal: Refusal) -> str:
    return MESSAGES.get(refusal.reason, "Exhausted IP Pools")


def wanted(text: str) -> Block | None:
    """The annotation `ipAddress`; an empty one asks for nothing."""
    if not text:
        return None
    try:
        return parse_host(text)
    except InvalidText as error:
        message = f'Invalid ipAddress annotation "{text}": not a valid IP address'
        raise InvalidText(message) from error


def _place(share: Share) -> tuple[Family, int]:
    return share.range.family, share.range.first


def _after(subnet: tuple[Block, Block] | None) -> tuple[Family, int]:
    """The address after the one a subnet was written with; behind the last there is, it lies in no subnet."""
    assert subnet is not None
    return subnet[1].family, subnet[1].first + 1


def _entries(spec: Mapping[str, Any]) -> tuple[tuple[Range, ...], tuple[Netconfig, ...]]:
    """The entries that have addresses: their ranges, and what goes with them."""
    entries = [(entry_range(entry), entry) for entry in spec.get("pools") or ()]
    ranges = tuple(found for found, _ in entries if found is not None)
    return ranges, tuple(_netconfig(spec, entry) for found, entry in entries if found is not None)


def _netconfig(spec: Mapping[str, Any], entry: Mapping[str, Any]) -> Netconfig:
    return Netconfig(
        prefix=entry.get("prefix") or spec.get("prefix") or None,
        gateway=entry.get("gateway") or spec.get("gateway") or None,
        dns_servers=tuple(entry.get("dnsServers") or spec.get("dnsServers") or ()),
    )
