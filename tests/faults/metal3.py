"""Metal3 under faults: claims of both APIs on one pool. A name that starts with k is a Cluster API claim."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.trade import Object, Shown, Snapshot, twice
from tests.support.metal3 import CAPI_ADDRESS, CAPI_CLAIM, capi_claim, claim

from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

POOL = "pool"


class Metal3:
    dialect = "metal3"
    shares_cluster = False
    page: Resource | None = None
    resources: tuple[Resource, ...] = (kinds.CLAIM, CAPI_CLAIM, kinds.ADDRESS, CAPI_ADDRESS, kinds.POOL)

    def __init__(self, first: str = "10.0.0.1", stem: str = "10.0.") -> None:
        self._first = first
        self._stem = stem

    def _entry(self, size: int) -> Object:
        if ":" in self._first:
            return {"start": self._first, "end": f"{self._stem}{size:x}"}
        return {"start": self._first, "end": f"{self._stem}{size // 256}.{size % 256}"}

    async def open(self, client: Client, namespace: str, size: int) -> None:
        spec = {"namePrefix": "p", "pools": [self._entry(size)], "prefix": 64 if ":" in self._first else 16}
        body = {"apiVersion": kinds.POOL.api_version, "kind": "IPPool", "spec": spec}
        await client.create(kinds.POOL, {**body, "metadata": {"name": POOL}}, namespace)

    async def resize(self, client: Client, namespace: str, size: int) -> None:
        await client.patch(kinds.POOL, POOL, {"spec": {"pools": [self._entry(size)]}}, namespace)

    async def close(self, client: Client, namespace: str) -> None:
        """Everything is in the namespace."""

    def claim(self, name: str) -> tuple[Resource, Object]:
        return (CAPI_CLAIM, capi_claim(name)) if name.startswith("k") else (kinds.CLAIM, claim(name))

    def shown(self, seen: Snapshot) -> list[Shown]:
        native, capi = _pairs(seen)
        return [*native.shown, *capi.shown]

    def broken(self, seen: Snapshot) -> list[str]:
        """I1 as users see it, and I3: what a claim shows is there."""
        pairs = _pairs(seen)
        lost = [
            f"I3: {one.name} shows {one.answer}, which is gone"
            for pair in pairs
            for one in pair.shown
            if one.answer and not one.going and one.answer not in pair.records
        ]
        return [*twice(self.shown(seen)), *twice(held for pair in pairs for held in pair.held()), *lost]

    def litter(self, seen: Snapshot) -> list[str]:
        """I2: every address object is the one its living claim shows."""
        answers = {one.name: one.answer for one in self.shown(seen)}
        records = [(one["spec"]["claim"]["name"], one) for one in seen[kinds.ADDRESS.key]]
        records += [(one["spec"]["claimRef"]["name"], one) for one in seen[CAPI_ADDRESS.key]]
        return [
            f"I2: {one['metadata']['name']} is held for {name}, which shows {answers.get(name)!r}"
            for name, one in records
            if answers.get(name) != one["metadata"]["name"]
        ]

    def used(self, seen: Snapshot) -> int | None:
        pools = [pool for pool in seen[kinds.POOL.key] if pool["metadata"]["name"] == POOL]
        return (pools[0].get("status") or {}).get("ipAddresses", {}).get("used") if pools else None


@dataclass(frozen=True, slots=True)
class Pair:
    """One API's claims, and its address objects by name."""

    shown: list[Shown]
    records: dict[str, Object]

    def held(self) -> list[Shown]:
        """By the address itself, whatever its object is called; only objects that claims show."""
        named = [one.answer for one in self.shown if not one.going and one.answer in self.records]
        return [Shown(name, "", self.records[name]["spec"]["address"], False) for name in named]


def _pairs(seen: Snapshot) -> tuple[Pair, Pair]:
    native = Pair([_native(one) for one in seen[kinds.CLAIM.key]], _by_name(seen[kinds.ADDRESS.key]))
    return native, Pair([_capi(one) for one in seen[CAPI_CLAIM.key]], _by_name(seen[CAPI_ADDRESS.key]))


def _by_name(objects: list[Object]) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in objects}


def _native(claim: Object) -> Shown:
    status = claim.get("status") or {}
    answer = (status.get("address") or {}).get("name", "")
    return _shown(claim, answer, status.get("errorMessage", ""))


def _capi(claim: Object) -> Shown:
    answer = ((claim.get("status") or {}).get("addressRef") or {}).get("name", "")
    ready = meta.condition(claim, "Ready") or {}
    return _shown(claim, answer, ready.get("reason", "") if ready.get("status") == "False" else "")


def _shown(claim: Object, answer: str, reason: str) -> Shown:
    return Shown(claim["metadata"]["name"], meta.uid(claim), answer, meta.is_deleting(claim), reason)
