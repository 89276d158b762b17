"""IPGroups, Services and IP objects ↔ our values. Pure.

An IP object's name is its address: dotted for IPv4, written out in full with dashes for IPv6, since a name
may hold no colon and one address must have one name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from berth.dialects.vip import kinds
from berth.dialects.vip.crds import LONGEST_LABEL
from berth.errors import InvalidText
from berth.kube import meta
from berth.leasing.model import Pool
from berth.net import Block, Family, Range, parse_address, parse_range
from berth.net.parse import MAPPED, TouchesMapped

Object = dict[str, Any]
FULL_V6 = re.compile(r"([0-9a-f]{4}-){7}[0-9a-f]{4}")
FAMILIES = {"IPv4": Family.V4, "IPv6": Family.V6}

SPECIFIC = "failed to allocate specific ip: "
NOT_PARSED = SPECIFIC + "the requested ip could not be parsed"
NOT_AVAILABLE = SPECIFIC + "the requested ip is not available"


# Pools


@dataclass(frozen=True, slots=True)
class Segment:
    """An IPGroup or GroupSegmentMapping, read once. With a fault it has no addresses, and others go on."""

    pool: Pool
    range: Range | None
    ignored: tuple[str, ...] = ()  # exclusions that are no single address
    fault: str | None = None

    @property
    def name(self) -> str:
        return self.pool.name

    def covers(self, block: Block) -> bool:
        """Lies in the segment, excluded or not."""
        found = self.range
        return found is not None and found.family is block.family and found.contains(block.first)


def read_segment(obj: Object) -> Segment:
    name = obj["metadata"]["name"]
    try:
        found = _range(obj)
    except InvalidText as error:
        return Segment(Pool(name), None, fault=str(error))
    spec = obj["spec"]
    parsed = {text: _address(text) for text in spec.get("excludedIPs") or ()}
    exclusions = tuple(block.range for block in parsed.values() if block is not None)
    ignored = tuple(text for text, block in parsed.items() if block is None)
    return Segment(Pool(name, (found,), exclusions), found, ignored)


def _range(obj: Object) -> Range:
    name, spec = obj["metadata"]["name"], obj.get("spec") or {}
    segment = spec.get("segment")
    if not segment:
        raise InvalidText("spec.segment is missing")
    if len(name) > LONGEST_LABEL:
        raise InvalidText(f"the name is longer than {LONGEST_LABEL} characters and cannot be a label")
    try:
        if "/" not in segment:
            raise InvalidText(segment)
        return parse_range(segment)
    except TouchesMapped as error:
        raise InvalidText(f"invalid CIDR address: {segment}: {MAPPED}") from error
    except InvalidText as error:
        raise InvalidText(f"invalid CIDR address: {segment}") from error


def _address(text: str) -> Block | None:
    try:
        return address_block(text.strip())
    except InvalidText:
        return None


@lru_cache(maxsize=4096)  # one Service's address is read several times in a row
def address_block(text: str) -> Block:
    address = parse_address(text)
    return Block(address.family, address.value, address.family.width)


# IP objects


def ip_name(block: Block) -> str:
    if block.family is Family.V4:
        return block.address
    return "-".join(f"{block.first >> shift & 0xFFFF:04x}" for shift in range(112, -1, -16))


def block_of(ip: Object) -> Block | None:
    """The address an IP object stands for; None if its name is none (a stranger's object)."""
    name = ip["metadata"]["name"]
    try:
        return address_block(name.replace("-", ":") if FULL_V6.fullmatch(name) else name)
    except InvalidText:
        return None


@dataclass(frozen=True, slots=True)
class Owner:
    """Who an IP object belongs to: a Service, or in the keepalived era a VirtualIP."""

    kind: str
    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        """The holder's key in the engine."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def text(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ref(self) -> meta.Ref:
        return meta.Ref(self.kind, self.namespace, self.name)


def owner(obj: Object) -> Owner:
    """A Service or VirtualIP as an owner."""
    about = obj["metadata"]
    return Owner(obj["kind"], about.get("namespace", ""), about["name"], meta.uid(obj))


def owner_of(ip: Object) -> Owner | None:
    """The label tells the era, and with it the owner's kind: the annotation does not."""
    namespace, slash, name = meta.annotations(ip).get(kinds.OWNER, "").partition("/")
    if not slash or not name:
        return None
    kind = "VirtualIP" if kinds.MAPPING_LABEL in meta.labels(ip) else "Service"
    return Owner(kind, namespace, name, meta.annotations(ip).get(kinds.OWNER_UID, ""))


def holder_of(ip: Object) -> str:
    found = owner_of(ip)
    return f"IP/{ip['metadata']['name']}" if found is None else found.key


def ip_object(block: Block, label: str, pool: str, owned_by: Owner) -> Object:
    return {
        "apiVersion": kinds.IP.api_version,
        "kind": "IP",
        "metadata": {
            "name": ip_name(block),
            "labels": {label: pool},
            "annotations": {kinds.OWNER: owned_by.text, kinds.OWNER_UID: owned_by.uid},
        },
        "spec": {},
        "status": {},
    }


# Services


class BadWish(Exception):
    """The Service asks for something no pool can give; the text says what."""


def is_load_balancer(service: Object) -> bool:
    return bool((service.get("spec") or {}).get("type") == "LoadBalancer")


def is_of_class(service: Object, classes: Collection[str]) -> bool:
    return ((service.get("spec") or {}).get("loadBalancerClass") or "") in classes


def families(service: Object) -> tuple[Family, ...]:
    """One address for each of these; servers before dual stack had one family and no field."""
    named = (service.get("spec") or {}).get("ipFamilies") or ["IPv4"]
    return tuple(FAMILIES[name] for name in named if name in FAMILIES)


def takes_less(service: Object) -> bool:
    """Two families are preferred, but one will do."""
    return bool((service.get("spec") or {}).get("ipFamilyPolicy") == "PreferDualStack")


def pins(service: Object) -> Mapping[Family, Block]:
    """The addresses a Service insists on, at most one of each family. Raises BadWish."""
    found: dict[Family, Block] = {}
    for text in _wished(service):
        try:
            block = address_block(text)
        except InvalidText as error:
            raise BadWish(f"{NOT_PARSED}: {text!r}") from error
        other = found.setdefault(block.family, block)
        if other != block:
            raise BadWish(f"{NOT_AVAILABLE}: both {other.address} and {block.address} are asked for")
    for family in found:
        if family not in families(service):
            wrong = found[family].address
            raise BadWish(f"{NOT_AVAILABLE}: {wrong} is of a family this Service does not have")
    return found


def _wished(service: Object) -> Iterator[str]:
    if text := (service.get("spec") or {}).get("loadBalancerIP"):
        yield text
    listed = meta.annotations(service).get(kinds.WANTED_ADDRESS, "")
    yield from (part.strip() for part in listed.split(",") if part.strip())


def remembered(service: Object) -> tuple[Block, ...]:
    """The addresses it had when it was last served."""
    texts = meta.annotations(service).get(kinds.HAD_ADDRESS, "").split(",")
    return tuple(block for block in map(_address, texts) if block is not None)


def ingress(service: Object) -> list[Object]:
    return ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def shown(service: Object) -> tuple[Block, ...]:
    """The addresses in its status; what is none (a hostname) is left out."""
    blocks = (_address(entry.get("ip") or "") for entry in ingress(service))
    return tuple(block for block in blocks if block is not None)


def with_ingress(service: Object, blocks: tuple[Block, ...]) -> Object:
    """The status with exactly these addresses; entries that are there keep what others added to them."""
    entries = {_address(entry.get("ip") or ""): entry for entry in ingress(service)}
    wanted = [entries.get(block, {"ip": block.address}) for block in blocks]
    status = dict(service.get("status") or {})
    before = status.get("loadBalancer") or {}
    status["loadBalancer"] = {**before, "ingress": wanted or None}
    return status


def claim_state(service: Object | None) -> str:
    """For the metrics; empty: not ours to count."""
    if service is None:
        return ""
    if meta.condition(service, kinds.CONDITION) is not None:
        return "Waiting"
    return "Bound" if ingress(service) and meta.has_finalizer(service, kinds.SERVICE_FINALIZER) else ""
