"""Zones out of NetBox, as a zones file: a zone's containers are its prefixes, and what others have in them
(prefixes and IP addresses that do not carry one of our uuids) is excluded. It is read when somebody asks for
it, never by a request: the ledger does not depend on NetBox.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from berth.central.integrations.netbox import PREFIXES, NetboxClient
from berth.central.zones import parse_zones
from berth.net import Block, Family, parse_block
from berth.store.engine import Engine

ADDRESSES = "/api/ipam/ip-addresses/"
Json = dict[str, Any]


async def our_uids(engine: Engine) -> frozenset[str]:
    async with engine.snapshot() as tx:
        return frozenset(row[0] for row in await tx.rows("SELECT uid FROM addresses"))


async def zones_text(client: NetboxClient, ours: frozenset[str]) -> str:
    """A zones file that passes the checks of one; UserError where NetBox's zones do not."""
    found = [await _zone(client, name, ours) for name in await client.zones()]
    text = yaml.safe_dump({"zones": [zone for zone in found if len(zone) > 1]}, sort_keys=False)
    parse_zones(text, "what NetBox has")
    return text


async def _zone(client: NetboxClient, name: str, ours: frozenset[str]) -> Json:
    """Nothing but its name, if it has no containers."""
    containers = await client.containers(name)
    blocks = outermost(parse_block(one["prefix"]) for one in containers)
    taken = [text for one in containers for text in await _foreign(client, one, name, ours)]
    zone = {
        "name": name,
        "ipv4": [str(block) for block in blocks if block.family is Family.V4],
        "ipv6": [str(block) for block in blocks if block.family is Family.V6],
        "exclude": list(dict.fromkeys(taken)),
    }
    return {key: value for key, value in zone.items() if value}


def outermost(blocks: Iterable[Block]) -> list[Block]:
    """In the given order, without those that lie in another."""
    every = list(dict.fromkeys(blocks))
    return [one for one in every if not any(other != one and other.covers(one) for other in every)]


async def _foreign(client: NetboxClient, container: Json, zone: str, ours: frozenset[str]) -> list[str]:
    """What is taken in a container by others; as NetBox does, only its own VRF is looked at."""
    vrf = str((container.get("vrf") or {}).get("id", "null"))
    inside = await client.pages(PREFIXES, within=container["prefix"], vrf_id=vrf)
    hosts = await client.pages(ADDRESSES, parent=container["prefix"], vrf_id=vrf)
    return [
        *(one["prefix"] for one in inside if not _is_ours(one, zone, ours)),
        *(one["address"].partition("/")[0] for one in hosts),
    ]


def _is_ours(prefix: Json, zone: str, ours: frozenset[str]) -> bool:
    """An address of the ledger, or a smaller container of the same zone."""
    fields = prefix.get("custom_fields") or {}
    status = (prefix.get("status") or {}).get("value")
    return fields.get("k8s_uuid") in ours or (status == "container" and fields.get("k8s_zone") == zone)
