"""An IPPool's status: Metal3's `indexes` and `lastUpdated`, and beside them usage counts and Ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson

from berth.kube import meta

if TYPE_CHECKING:
    from berth.dialects.metal3.leases import IPAddressLedger
    from berth.dialects.metal3.pools import IPPools, OpenPool

Object = dict[str, Any]
CAPI = "IPAddressClaim"
CONFLICT = "AddressConflict"  # the condition; there while it is so
FEW = 5  # objects named in it
LARGEST_COUNT = 2**63 - 1
# The API server refuses objects above 1.5 MiB. A pool with more allocations than fit here keeps serving; the
# list then stops growing and says so. A long spec (pre-allocations) leaves less room, and counts twice, since
# the server keeps a list of its fields too.
INDEXES_BYTES = 1_000_000
OBJECT_BYTES = 1_500_000


def pool_status(pool: Object, opened: OpenPool, pools: IPPools, now: datetime) -> Object:
    status = dict(pool.get("status") or {})
    room = min(INDEXES_BYTES, OBJECT_BYTES - 2 * len(orjson.dumps(pool["spec"])))
    key = f"{pool['metadata']['namespace']}/{pool['metadata']['name']}"
    indexes, complete = _indexes(key, opened, pools, room)
    if indexes != (status.get("indexes") or {}):
        status["lastUpdated"] = meta.timestamp(now)
    status.setdefault("lastUpdated", pool["metadata"]["creationTimestamp"])
    status["indexes"] = indexes or None
    status["indexesTruncated"] = None if complete else True
    usage = opened.desk.space.usage()
    status["ipAddresses"] = {
        "total": min(usage.total, LARGEST_COUNT),
        "used": min(usage.used, LARGEST_COUNT),
        "free": min(usage.free, LARGEST_COUNT),
        "reserved": min(usage.reserved, LARGEST_COUNT),
        "outOfRange": min(usage.outside, LARGEST_COUNT),
    }
    conditions = meta.with_condition(status.get("conditions") or [], _ready(pool, opened), now)
    conflict = _conflict(pool, opened)
    if conflict is None:
        status["conditions"] = meta.without_condition(conditions, CONFLICT)
    else:
        status["conditions"] = meta.with_condition(conditions, conflict, now)
    return status


def _allocations(key: str, opened: OpenPool, pools: IPPools) -> Iterator[tuple[IPAddressLedger, Object]]:
    """The address objects without the odd ones, which give nothing to anybody."""
    for leases, address in pools.addresses(key):
        if not opened.odd or leases.key_of_object(address) not in opened.odd:
            yield leases, address


def _indexes(key: str, opened: OpenPool, pools: IPPools, room: int) -> tuple[dict[str, str], bool]:
    """Claim name → address. Where both APIs have a claim of one name, Metal3's keeps the bare name."""
    indexes, complete = _as_many_as_fit(_allocations(key, opened, pools), room)
    if complete:
        return indexes, True
    # Which of them fit must not depend on the order we heard of them: another operator shows the same.
    ordered = sorted(
        _allocations(key, opened, pools),
        key=lambda one: (one[0].flavour.kind == CAPI, one[1]["metadata"]["name"]),
    )
    return _as_many_as_fit(ordered, room)


def _as_many_as_fit(
    addresses: Iterable[tuple[IPAddressLedger, Object]], room: int
) -> tuple[dict[str, str], bool]:
    indexes: dict[str, str] = {}
    size = 0
    for leases, address in addresses:
        name = leases.flavour.claim_of_address(address)
        if name in indexes and leases.flavour.kind == CAPI:
            name = f"{name}.ipaddressclaim"
        size += len(name) + len(address["spec"]["address"]) + 6
        if size > room:
            return indexes, False
        indexes[name] = address["spec"]["address"]
    return indexes, True


def _ready(pool: Object, opened: OpenPool) -> Object:
    ready = {"type": "Ready", "observedGeneration": pool["metadata"].get("generation", 1)}
    if meta.is_deleting(pool):
        return {
            **ready,
            "status": "False",
            "reason": "Deleting",
            "message": "waiting for its addresses to be released",
        }
    if opened.fault is not None:
        return {**ready, "status": "False", "reason": "PoolInvalid", "message": opened.fault}
    return {**ready, "status": "True", "reason": "Ready", "message": ""}


def _conflict(pool: Object, opened: OpenPool) -> Object | None:
    """Address objects that give nothing to anybody, while there are such."""
    if not opened.odd:
        return None
    odd = sorted(opened.odd.values(), key=lambda one: one.name)
    told = "; ".join(f"IPAddress {one.name}: {one.message}" for one in odd[:FEW])
    more = f"; and {len(odd) - FEW} more" if len(odd) > FEW else ""
    return {
        "type": CONFLICT,
        "status": "True",
        "reason": odd[0].reason,
        "message": told + more,
        "observedGeneration": pool["metadata"].get("generation", 1),
    }
