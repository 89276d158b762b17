"""IPGroups and GroupSegmentMappings, the IP objects that are their ledger, and who holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from berth.dialects.view import (
    DEFAULTS,
    NO_ANSWER,
    Finding,
    LeaseRow,
    Object,
    PoolRow,
    Question,
    View,
    name_of,
    objects,
    shown_by,
    state_of,
    waits,
    warned,
)
from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import is_migrating
from berth.dialects.vip.settings import VipSettings
from berth.dialects.vip.translate import (
    Owner,
    Segment,
    block_of,
    is_load_balancer,
    owner,
    owner_of,
    read_segment,
    shown,
)
from berth.dialects.vip.virtualip import address_of
from berth.kube import meta
from berth.kube.client import Client
from berth.leasing.space import Space
from berth.net import Block
from berth.settings import Settings

POOLS = (kinds.IPGROUP, kinds.MAPPING)

# Pools and leases


async def pools(client: Client, settings: Settings = DEFAULTS) -> list[PoolRow]:
    """Of all namespaces, whichever is asked about: groups, mappings and IP objects are in none."""
    ips = await objects(client, kinds.IP)
    return [_pool_row(pool, ips) for kind in POOLS for pool in await objects(client, kind)]


def _pool_row(pool: Object, ips: list[Object]) -> PoolRow:
    segment = read_segment(pool)
    space = Space(segment.pool)
    for ip in ips:
        block = block_of(ip)
        if block is not None and segment.covers(block):
            space.adopt(block, ip["metadata"]["name"])
    usage = space.usage()
    state = state_of(pool, segment.fault or "")
    return PoolRow("vip", pool["kind"], segment.name, usage.total, usage.used, usage.free, state)


async def leases(client: Client, settings: Settings = DEFAULTS) -> list[LeaseRow]:
    return [
        LeaseRow(
            "vip",
            block.address if (block := block_of(ip)) is not None else ip["metadata"]["name"],
            "(nobody)" if (had_by := owner_of(ip)) is None else f"{had_by.kind} {had_by.text}",
            meta.labels(ip).get(kinds.GROUP_LABEL) or meta.labels(ip).get(kinds.MAPPING_LABEL, ""),
        )
        for ip in await objects(client, kinds.IP)
        if _is_in(settings, owner_of(ip))
    ]


def _is_in(settings: Settings, had_by: Owner | None) -> bool:
    return not settings.namespace or (had_by is not None and had_by.namespace == settings.namespace)


# Adoption


async def findings(client: Client, settings: Settings = DEFAULTS) -> list[Finding]:
    segments = {kind.kind: [read_segment(one) for one in await objects(client, kind)] for kind in POOLS}
    ips = await objects(client, kinds.IP)
    services = await objects(client, kinds.SERVICE)
    vips = await objects(client, kinds.VIRTUAL_IP)
    there = VipObjects(
        {(one["kind"], name_of(one)): one for one in (*services, *vips)},
        {block: ip for ip in ips if (block := block_of(ip)) is not None},
        segments["IPGroup"],
        settings,
    )
    found = [
        Finding("vip", f"{kind} {one.name}", one.fault or "")
        for kind, read in segments.items()
        for one in read
    ]
    found += [
        Finding("vip", f"IP {ip['metadata']['name']}", _ip_problem(ip, there))
        for ip in ips
        if _is_in(settings, owner_of(ip))
    ]
    for holder in (*services, *vips):
        found += _holder_findings(holder, there)
    return found


@dataclass(frozen=True, slots=True)
class VipObjects:
    """What is there, and who was seen to show which address."""

    holders: dict[tuple[str, str], Object]  # by kind and name
    ips: dict[Block, Object]
    groups: list[Segment]
    settings: Settings
    seen: dict[Block, str] = field(default_factory=dict)

    def serves(self, service: Object) -> bool:
        return (service["spec"].get("loadBalancerClass") or "") in self.settings.of(VipSettings).classes

    def covers(self, block: Block) -> bool:
        return any(group.covers(block) for group in self.groups)


def _ip_problem(ip: Object, there: VipObjects) -> str:
    had_by = owner_of(ip)
    if block_of(ip) is None:
        return "its name is no address; it is left alone"
    if had_by is None:
        return ""  # somebody's reservation, and stays one
    holder = there.holders.get((had_by.kind, had_by.text))
    if holder is None:
        return f"its owner, {had_by.kind} {had_by.text}, is gone; it will be given back after a grace"
    if had_by.kind == "Service" and is_load_balancer(holder) and not there.serves(holder):
        of_class = holder["spec"].get("loadBalancerClass") or "(none)"
        left = "what the Service shows is left alone"
        return f"its Service's class {of_class} is served only with --vip-classes; {left}"
    return ""


def _holder_findings(holder: Object, there: VipObjects) -> Iterable[Finding]:
    """One for each address that a Service of ours or a VirtualIP shows."""
    if not _is_in(there.settings, owner(holder)):
        return
    for block in _shown(holder, there):
        what = f"{holder['kind']} {name_of(holder)} ({block.address})"
        yield Finding("vip", what, _holder_problem(holder, block, there))


def _shown(holder: Object, there: VipObjects) -> tuple[Block, ...]:
    """A Service whose address no group has, and no IP object, is another load balancer's. While a VirtualIP
    is turned into its Service, both show one address.
    """
    if holder["kind"] == "VirtualIP":
        block = address_of(holder)
        return () if block is None or is_migrating(holder) else (block,)
    moving = kinds.MIGRATING in meta.annotations(holder)
    if moving or not is_load_balancer(holder) or not there.serves(holder):
        return ()
    return tuple(block for block in shown(holder) if block in there.ips or there.covers(block))


def _holder_problem(holder: Object, block: Block, there: VipObjects) -> str:
    name = f"{holder['kind']} {name_of(holder)}"
    record = there.ips.get(block)
    had_by = None if record is None else owner_of(record)
    if record is not None and (
        had_by is None or (had_by.kind, had_by.text) != (holder["kind"], name_of(holder))
    ):
        whose = "nobody's" if had_by is None else f"{had_by.kind} {had_by.text}'s"
        return f"shows an address whose IP object is {whose}"
    other = there.seen.setdefault(block, name)
    if other != name:
        return f"shows the address that {other} shows"
    if (
        record is None
        and holder["kind"] == "Service"
        and not meta.has_finalizer(holder, kinds.SERVICE_FINALIZER)
    ):
        return "shows an address without an IP object: it keeps it, and is not served"
    return ""


# Explanations


def answer(asked: Question) -> str:
    status = asked.status
    if given := shown_by(status) or status.get("ip"):
        return f"has {given}"
    if status.get("state"):
        return waits(status["state"], status.get("message", ""))
    for condition in status.get("conditions") or []:
        if condition.get("status") == "False" or condition.get("type") == kinds.CONDITION:
            return waits(condition.get("reason"), condition.get("message", ""))
    return asked.unserved or warned(asked.events) or NO_ANSWER


def considers(row: PoolRow, holder: Object, settings: Settings) -> bool:
    """Any of the pools of its era."""
    return row.kind == ("GroupSegmentMapping" if holder["kind"] == "VirtualIP" else "IPGroup")


VIEW = View(
    kinds={"virtualip": (kinds.VIRTUAL_IP,), "service": (kinds.SERVICE,)},
    short={"vip": "virtualip", "svc": "service"},
    pools=pools,
    leases=leases,
    findings=findings,
    answer=answer,
    considers=considers,
)
