"""What three upstream systems leave in a cluster, as their contracts tell.

Finalizers, statuses, address objects, nothing of ours. Addresses are not those a fresh start would choose, so
that a new choice would show.
"""

from __future__ import annotations

from typing import Any

from tests.support import kubipam, metal3, vip

from berth.dialects.kubipam.kinds import FINALIZER, RANGE, REQUEST
from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]
EACH = 5
PLACE = "default"


async def leave_all(client: Client) -> None:
    """Their CRDs are there."""
    await leave_metal3(metal3.World(client, PLACE))
    await leave_kubipam(client)
    await leave_vip(vip.World(client, PLACE))


async def leave_metal3(world: metal3.World) -> None:
    owner = await world.create(metal3.cluster_object("cluster1"))
    labels = {kinds.CLUSTER_LABEL: "cluster1", kinds.PROVIDER_LABEL: "ipam-metal3"}
    owners = [{**meta.owner_reference(owner), "controller": False}]
    held: Object = {"labels": labels, "finalizers": [kinds.POOL_FINALIZER], "ownerReferences": owners}
    pool = meta.owner_reference(await world.create(metal3.pool("pool", metal3.SEED, **held)))
    indexes: dict[str, str] = {}
    for number in range(EACH):
        indexes |= await _native(world, f"old-{number}", f"192.168.1.{200 - number}", pool)
        indexes |= await _of_capi(world, f"capi-{number}", f"192.168.1.{240 - number}", pool)
    status = {"indexes": indexes, "lastUpdated": "2026-01-01T00:00:00Z"}
    await world.edit(kinds.POOL, "pool", {"status": status}, "status")


async def _native(world: metal3.World, name: str, text: str, pool: Object) -> dict[str, str]:
    asked = await world.create(metal3.claim(name, finalizers=[kinds.CLAIM_FINALIZER]))
    called = f"test1-prov-{text.replace('.', '-')}"
    held: Object = {"finalizers": [kinds.ADDRESS_FINALIZER]}
    held["ownerReferences"] = [pool, meta.owner_reference(asked)]
    await world.create(metal3.address(called, text, name, **held))
    bound = {"address": {"name": called, "namespace": PLACE}}
    await world.edit(kinds.CLAIM, name, {"status": bound}, "status")
    return {name: text}


async def _of_capi(world: metal3.World, name: str, text: str, pool: Object) -> dict[str, str]:
    asked = await world.create(metal3.capi_claim(name, finalizers=[kinds.CAPI_CLAIM_FINALIZER]))
    called = f"test1-prov-{text.replace('.', '-')}"
    held: Object = {"finalizers": [kinds.CAPI_ADDRESS_FINALIZER]}
    held["ownerReferences"] = [pool, meta.owner_reference(asked)]
    await world.create(metal3.capi_address(called, text, name, **held))
    await world.edit(metal3.CAPI_CLAIM, name, {"status": {"addressRef": {"name": called}}}, "status")
    return {name: text}


async def leave_kubipam(client: Client) -> None:
    world = kubipam.World(client, PLACE)
    await world.range("10.20.0.0/16", name="range", chunkSize=24)
    await _finished(client, RANGE, "range", {"state": "Ready"})
    for number in range(EACH):
        await world.ask(f"net-{number}", "range")
        cidr = f"10.20.{100 + number}.0/24"
        await _finished(client, REQUEST, f"net-{number}", {"state": "Ready", "cidr": cidr})


async def _finished(client: Client, resource: Resource, name: str, status: Object) -> None:
    await client.patch(resource, name, {"metadata": {"finalizers": [FINALIZER]}}, PLACE)
    await client.patch(resource, name, {"status": status}, PLACE, subresource="status")


async def leave_vip(world: vip.World) -> None:
    await world.group(*vip.G)
    for number in range(EACH):
        name, text = f"web-{number}", f"1.1.1.{100 + number}"
        await world.service(name)
        await world.ip(text, vip.G[0], name)
        await world.hold(name)
        await world.show(name, text)
