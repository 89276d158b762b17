"""IPPools and their addresses, of both APIs, as a person wants to see them."""

from __future__ import annotations

from collections import defaultdict

from berth.dialects.metal3 import kinds
from berth.dialects.metal3.capi import Capi
from berth.dialects.metal3.flavour import Flavour
from berth.dialects.metal3.native import Native
from berth.dialects.metal3.translate import read_pool
from berth.errors import InvalidText
from berth.kube.client import Client
from berth.leasing.space import Space
from berth.net import parse_block
from berth.views import Finding, LeaseRow, Object, PoolRow, Views, name_of, objects


async def _addresses(client: Client) -> list[tuple[Flavour, Object]]:
    native, capi = Native(), Capi()
    found: list[tuple[Flavour, Object]] = [(native, a) for a in await objects(client, kinds.ADDRESS)]
    found += [(capi, a) for a in await objects(client, *kinds.CAPI_ADDRESSES) if capi.pool_of_address(a)]
    return found


async def pools(client: Client) -> list[PoolRow]:
    taken: dict[str, list[Object]] = defaultdict(list)
    for flavour, address in await _addresses(client):
        taken[flavour.pool_of_address(address) or ""].append(address)
    return [_pool_row(pool, taken[name_of(pool)]) for pool in await objects(client, kinds.POOL)]


def _pool_row(pool: Object, addresses: list[Object]) -> PoolRow:
    try:
        space = Space(read_pool(pool).pool)
    except InvalidText as error:
        return PoolRow("metal3", name_of(pool), 0, len(addresses), 0, str(error))
    for address in addresses:
        space.adopt(parse_block(address["spec"]["address"]), address["metadata"]["name"])
    usage = space.usage()
    return PoolRow("metal3", name_of(pool), usage.total, usage.used, usage.free, "")


async def leases(client: Client) -> list[LeaseRow]:
    return [
        LeaseRow(
            "metal3",
            address["spec"]["address"],
            f"{flavour.kind} {address['metadata']['namespace']}/{flavour.claim_of_address(address)}",
            flavour.pool_of_address(address) or "",
        )
        for flavour, address in await _addresses(client)
    ]


async def findings(client: Client) -> list[Finding]:
    pools_by_name = {name_of(pool): pool for pool in await objects(client, kinds.POOL)}
    found = [_pool_finding(pool) for pool in pools_by_name.values()]
    holders: dict[tuple[str, str], str] = {}
    for flavour, address in await _addresses(client):
        found.append(_address_finding(flavour, address, pools_by_name, holders))
    return found


def _pool_finding(pool: Object) -> Finding:
    try:
        read_pool(pool)
    except InvalidText as error:
        return Finding("metal3", f"IPPool {name_of(pool)}", f"cannot be read: {error}")
    return Finding("metal3", f"IPPool {name_of(pool)}", "")


def _address_finding(
    flavour: Flavour, address: Object, pools_by_name: dict[str, Object], holders: dict[tuple[str, str], str]
) -> Finding:
    what = f"IPAddress {name_of(address)} ({address['spec'].get('address')})"
    pool = flavour.pool_of_address(address) or ""
    if pool not in pools_by_name:
        return Finding("metal3", what, f"its IPPool {pool} does not exist; it is left alone")
    try:
        block = parse_block(address["spec"]["address"])
    except (InvalidText, KeyError):
        return Finding("metal3", what, "its address cannot be read; it is left alone")
    other = holders.setdefault((pool, str(block)), what)
    if other != what:
        return Finding("metal3", what, f"has the same address as {other}: remove one of them first")
    return Finding("metal3", what, "")


VIEWS = Views("metal3", pools, leases, findings)
