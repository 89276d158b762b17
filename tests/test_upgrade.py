"""Three upstream systems in one cluster, taken over at once: no address moves, then nothing is written.

What they leave is written down from their contracts: finalizers, statuses, address objects, nothing of ours.
Addresses are not those a fresh start would choose, so that a new choice would show.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from tests.support import kubipam, metal3, vip
from tests.support.operator import Operator, admin, crds_of, eventually, install, running
from tests.support.shipped import fetched

from berth.devcluster import DevCluster
from berth.dialects.kubipam.kinds import FINALIZER, RANGE, REQUEST
from berth.dialects.metal3 import kinds
from berth.dialects.vip import kinds as vip_kinds
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]
EACH = 5
PLACE = "default"
KINDS = (
    *(kinds.POOL, kinds.CLAIM, kinds.ADDRESS, metal3.CAPI_CLAIM, metal3.CAPI_ADDRESS),
    *(RANGE, REQUEST),
    *(vip_kinds.IPGROUP, vip_kinds.IP, vip_kinds.SERVICE),
)
WRITES = {"create", "patch", "update", "replace", "delete", "post", "put"}
# Everything is looked at again and again while the test looks on.
OFTEN: Object = {"vip_resync_seconds": 0.5, "metal3_sweep_seconds": 0.5}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def upstreams() -> AsyncIterator[DevCluster]:
    async with DevCluster() as own:
        async with admin(own) as client:
            await install(client, crds_of("metal3", "kubipam", "vip"))
            await _leave_metal3(metal3.World(client, PLACE))
            await _leave_kubipam(client)
            await _leave_vip(vip.World(client, PLACE))
        yield own


async def _leave_metal3(world: metal3.World) -> None:
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


async def _leave_kubipam(client: Client) -> None:
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


async def _leave_vip(world: vip.World) -> None:
    await world.group(*vip.G)
    for number in range(EACH):
        name, text = f"web-{number}", f"1.1.1.{100 + number}"
        await world.service(name)
        await world.ip(text, vip.G[0], name)
        await world.hold(name)
        await world.show(name, text)


async def test_no_address_moves_and_a_second_start_writes_nothing(upstreams: DevCluster) -> None:
    """P11, P12 of all three at once."""
    async with admin(upstreams) as client:
        before = await addresses(client)
    assert len(before) == 4 * EACH + EACH  # vip's are in the Services and in the IP objects
    async with running(upstreams, dialects=("metal3", "kubipam", "vip"), **OFTEN) as first:
        await settled(first)
        assert await addresses(first.client) == before
        stored = await revisions(first.client)
    async with running(upstreams, dialects=("metal3", "kubipam", "vip"), **OFTEN) as second:
        assert await settled(second) == 0
        assert await revisions(second.client) == stored
        assert await addresses(second.client) == before


async def addresses(client: Client) -> dict[str, str]:
    """Who holds what, as its user sees it."""
    found: dict[str, str] = {}
    for resource in (kinds.ADDRESS, metal3.CAPI_ADDRESS):
        for obj in (await client.list(resource)).items:
            holder = obj["spec"].get("claim") or obj["spec"]["claimRef"]
            found[f"{resource.kind} for {holder['name']}"] = obj["spec"]["address"]
    for obj in (await client.list(REQUEST)).items:
        found[str(meta.ref(obj))] = obj["status"]["cidr"]
    for obj in (await client.list(vip_kinds.IP)).items:
        found[f"IP of {meta.annotations(obj)[vip_kinds.OWNER]}"] = obj["metadata"]["name"]
    for obj in (await client.list(vip_kinds.SERVICE, PLACE)).items:
        if obj["spec"]["type"] == "LoadBalancer":
            found[str(meta.ref(obj))] = obj["status"]["loadBalancer"]["ingress"][0]["ip"]
    return found


async def revisions(client: Client) -> dict[str, str]:
    return {
        f"{resource.api_version} {meta.ref(obj)}": meta.resource_version(obj)
        for resource in KINDS
        for obj in (await client.list(resource)).items
    }


async def settled(operator: Operator) -> int:
    """The number of writes so far, when every controller was at work and the last rounds wrote nothing."""
    await eventually(partial(_all_at_work, operator), 60)

    async def quiet() -> bool:
        before = await _told(operator)
        await eventually(partial(_went_round, operator, before), 60, every=0.2)
        return _writes(await _told(operator)) == _writes(before)

    await eventually(quiet, 60, every=0.2)
    return int(_writes(await _told(operator)))


Samples = dict[tuple[str, ...], float]


async def _told(operator: Operator) -> Samples:
    """The counters that matter: reconciles by controller, requests by verb."""
    _, text = await fetched(operator.listening.metrics, "metrics")
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.labels.get("controller") or sample.labels.get("verb")
            if sample.name in ("berth_reconcile_seconds_count", "berth_kube_request_seconds_count") and key:
                found[sample.name, key] = found.get((sample.name, key), 0) + sample.value
    return found


def _reconciled(told: Samples, controller: str) -> float:
    return told.get(("berth_reconcile_seconds_count", controller), 0)


def _writes(told: Samples) -> float:
    verbs = {key[1].lower() for key in told if key[0] == "berth_kube_request_seconds_count"}
    assert verbs <= WRITES | {"get", "list", "watch"}, verbs
    return sum(value for (name, verb), value in told.items() if verb.lower() in WRITES and "request" in name)


async def _all_at_work(operator: Operator) -> bool:
    """Each claim, request and Service was looked at at least once."""
    told = await _told(operator)
    wanted = {
        "metal3.ipclaim": EACH,
        "metal3.ipaddressclaim": EACH,
        "kubipam.request": EACH,
        "vip.service": EACH,
    }
    missing = {name: _reconciled(told, name) for name in wanted if _reconciled(told, name) < wanted[name]}
    assert not missing, told
    return True


async def _went_round(operator: Operator, before: Samples) -> bool:
    """vip looks at every Service again and again: three rounds are time enough for anybody."""
    now = _reconciled(await _told(operator), "vip.service")
    return now >= _reconciled(before, "vip.service") + 3 * EACH
