"""Metal3 under faults: claims of both APIs come and go on a small pool."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.faults.killing import Wait

from berth.dialects.metal3 import kinds
from berth.errors import NotFound
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]
CAPI_CLAIM, CAPI_ADDRESS = kinds.CAPI_CLAIMS[0], kinds.CAPI_ADDRESSES[0]
POOL = "pool"


class Metal3Scenario:
    """Four claims on four addresses; two go, two more come."""

    dialect = "metal3"
    staying = ("m1", "m3")
    capi_staying = ("k1", "k2")
    going = "m2"

    async def play(self, client: Client, namespace: str, wait: Wait) -> None:
        await client.create(kinds.POOL, pool(namespace, 4), namespace)
        for name in ("m1", "m2"):
            await client.create(kinds.CLAIM, claim(namespace, name), namespace)
        await client.create(CAPI_CLAIM, capi_claim(namespace, "k1"), namespace)

        async def first_three() -> bool:
            return len(await addresses(client, namespace)) >= 3

        await wait(first_three)
        await client.delete(kinds.CLAIM, self.going, namespace)

        async def is_gone() -> bool:
            return not await exists(client, kinds.CLAIM, self.going, namespace)

        await wait(is_gone)
        await client.create(kinds.CLAIM, claim(namespace, "m3"), namespace)
        await client.create(CAPI_CLAIM, capi_claim(namespace, "k2"), namespace)

        async def bound() -> bool:
            return await self.settled(client, namespace)

        await wait(bound)

    async def settled(self, client: Client, namespace: str) -> bool:
        if await exists(client, kinds.CLAIM, self.going, namespace):
            return False
        if len(await addresses(client, namespace)) != 4:
            return False
        for name in self.staying:
            found = await client.get(kinds.CLAIM, name, namespace)
            if not (found.get("status") or {}).get("address"):
                return False
        for name in self.capi_staying:
            found = await client.get(CAPI_CLAIM, name, namespace)
            if not (found.get("status") or {}).get("addressRef"):
                return False
        used = await client.get(kinds.POOL, POOL, namespace)
        return bool(((used.get("status") or {}).get("ipAddresses") or {}).get("used") == 4)

    async def violations(self, client: Client, namespace: str) -> list[str]:
        return await violations(client, namespace)


async def violations(client: Client, namespace: str) -> list[str]:
    """I1: no address twice, over both APIs. I2: every address has a living claim that names it."""
    found: list[str] = []
    holders: dict[str, list[str]] = defaultdict(list)
    for resource, claims, ref in (
        (kinds.ADDRESS, kinds.CLAIM, "claim"),
        (CAPI_ADDRESS, CAPI_CLAIM, "claimRef"),
    ):
        for address in (await client.list(resource, namespace)).items:
            name = address["spec"][ref]["name"]
            holders[address["spec"]["address"]].append(f"{claims.kind} {name}")
            if not await exists(client, claims, name, namespace):
                found.append(
                    f"I2: {address['metadata']['name']} is held by nobody: {claims.kind} {name} is gone"
                )
    found += [f"I1: {address} has {who}" for address, who in holders.items() if len(who) > 1]
    return found


async def addresses(client: Client, namespace: str) -> list[Object]:
    native = (await client.list(kinds.ADDRESS, namespace)).items
    return [*native, *(await client.list(CAPI_ADDRESS, namespace)).items]


async def exists(client: Client, resource: Resource, name: str, namespace: str) -> bool:
    try:
        await client.get(resource, name, namespace)
    except NotFound:
        return False
    return True


def pool(namespace: str, size: int) -> Object:
    spec = {
        "namePrefix": "p",
        "pools": [{"start": "10.0.0.1", "end": f"10.0.{size // 256}.{size % 256}"}],
        "prefix": 16,
    }
    return _object(kinds.POOL, namespace, POOL, spec)


def claim(namespace: str, name: str) -> Object:
    return _object(kinds.CLAIM, namespace, name, {"pool": {"name": POOL}})


def capi_claim(namespace: str, name: str) -> Object:
    spec = {"poolRef": {"apiGroup": kinds.GROUP, "kind": "IPPool", "name": POOL}}
    return _object(CAPI_CLAIM, namespace, name, spec)


def _object(resource: Resource, namespace: str, name: str, spec: Object) -> Object:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}
