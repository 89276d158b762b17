"""The ledger and NetBox compared. Repairing only ever adds to NetBox, through the outbox: a prefix that the
ledger does not know may be anybody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from berth.central.integrations.netbox import PREFIXES, NetboxClient
from berth.net.host import canonical
from berth.store import queries, statement
from berth.store.engine import Engine
from berth.store.requests import zone_of
from berth.store.rows import AddressRow


@dataclass(slots=True)
class Differences:
    absent: list[AddressRow] = field(default_factory=list)  # held, not in NetBox
    foreign: list[AddressRow] = field(default_factory=list)  # held, in NetBox with another's uuid
    unknown: list[str] = field(default_factory=list)  # in NetBox with a uuid, not held

    def __bool__(self) -> bool:
        return bool(self.absent or self.foreign or self.unknown)


async def compare(client: NetboxClient, engine: Engine) -> Differences:
    async with engine.snapshot() as tx:
        held = {one.address.address: one.address async for one in queries.all_records(tx)}
    there = await _mirrored(client, {zone_of(row.pool) for row in held.values()} | set(await client.zones()))
    found = Differences(unknown=sorted(there.keys() - held.keys()))
    for address, row in sorted(held.items()):
        if address not in there:
            found.absent.append(row)
        elif row.uid not in there[address]:
            found.foreign.append(row)
    return found


async def _mirrored(client: NetboxClient, zones: Iterable[str]) -> dict[str, set[str]]:
    """Host prefixes that carry a uuid, by address."""
    there: dict[str, set[str]] = {}
    for zone in sorted(zones):
        for prefix in await client.pages(PREFIXES, cf_k8s_zone=zone):
            address, uid = _host(prefix)
            if address and uid:
                there.setdefault(address, set()).add(uid)
    return there


def _host(prefix: dict[str, Any]) -> tuple[str, str]:
    try:
        fields = prefix.get("custom_fields") or {}
        return canonical(str(prefix.get("prefix")))[1], str(fields.get("k8s_uuid") or "")
    except ValueError:
        return "", ""  # a container


async def repair(engine: Engine, absent: Sequence[AddressRow]) -> None:
    """Push again what is missing there; twice does no harm."""
    async with engine.transaction(slow=True) as tx:
        now = await tx.now()
        parcels = [(now, "push", row.address, row.pool, row.uid) for row in absent]
        await tx.many(statement.INSERT_OUTBOX, parcels)
