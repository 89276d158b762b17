"""IPGroups, the IP objects that are their ledger, and the Services that hold them."""

from __future__ import annotations

from berth.dialects.vip import kinds
from berth.dialects.vip.translate import block_of, owner_of, read_segment
from berth.kube import meta
from berth.kube.client import Client
from berth.leasing.space import Space
from berth.views import Finding, LeaseRow, Object, PoolRow, Views, name_of, objects


async def pools(client: Client) -> list[PoolRow]:
    ips = await objects(client, kinds.IP)
    return [_pool_row(group, ips) for group in await objects(client, kinds.IPGROUP)]


def _pool_row(group: Object, ips: list[Object]) -> PoolRow:
    segment = read_segment(group)
    space = Space(segment.pool)
    for ip in ips:
        block = block_of(ip)
        if block is not None and segment.covers(block):
            space.adopt(block, ip["metadata"]["name"])
    usage = space.usage()
    return PoolRow("vip", segment.name, usage.total, usage.used, usage.free, segment.fault or "")


async def leases(client: Client) -> list[LeaseRow]:
    return [
        LeaseRow(
            "vip",
            block.address if (block := block_of(ip)) is not None else ip["metadata"]["name"],
            meta.annotations(ip).get(kinds.OWNER, "(nobody)"),
            meta.labels(ip).get(kinds.GROUP_LABEL) or meta.labels(ip).get(kinds.MAPPING_LABEL, ""),
        )
        for ip in await objects(client, kinds.IP)
    ]


async def findings(client: Client) -> list[Finding]:
    groups = await objects(client, kinds.IPGROUP)
    owners = {
        (kind.kind, name_of(obj))
        for kind in (kinds.SERVICE, kinds.VIRTUAL_IP)
        for obj in await objects(client, kind)
    }
    found = [Finding("vip", f"IPGroup {name_of(g)}", read_segment(g).fault or "") for g in groups]
    return found + [_ip_finding(ip, owners) for ip in await objects(client, kinds.IP)]


def _ip_finding(ip: Object, owners: set[tuple[str, str]]) -> Finding:
    return Finding("vip", f"IP {ip['metadata']['name']}", _problem(ip, owners))


def _problem(ip: Object, owners: set[tuple[str, str]]) -> str:
    owner = owner_of(ip)
    if block_of(ip) is None:
        return "its name is no address; it is left alone"
    # Without an owner it is somebody's reservation, and stays one.
    if owner is not None and (owner.kind, owner.text) not in owners:
        return f"its owner, {owner.kind} {owner.text}, is gone; it will be given back after a grace"
    return ""


VIEWS = Views("vip", pools, leases, findings)
