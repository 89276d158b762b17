"""An installation of upstream, taken over as it stands: CRDs, pools, claims and addresses as it leaves them.

On a control plane of its own, because the CRDs are upstream's first: the same fields without our rules.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.metal3 import (
    CAPI_ADDRESS,
    CAPI_CLAIM,
    SEED,
    World,
    address,
    capi_address,
    capi_claim,
    claim,
    cluster_object,
    pool,
    ranged,
)
from tests.support.operator import CRD, admin, capi_crds, crds_of, eventually, install, running

from berth.devcluster import DevCluster
from berth.dialects.metal3 import Metal3, kinds
from berth.errors import Invalid
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
EVENTS = Resource("", "v1", "Event", "events")
KINDS = (kinds.POOL, kinds.CLAIM, kinds.ADDRESS, CAPI_CLAIM, CAPI_ADDRESS)
SERVED = 30  # claims of each API


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def upstreams() -> AsyncIterator[DevCluster]:
    async with DevCluster() as own:
        async with admin(own) as client:
            await install(client, [*(_lenient(crd) for crd in Metal3().crds()), *capi_crds()])
            await leave(World(client, "default"))
            await sneak_in(World(client, "default"))
            await replace_crds(client)
        yield own


def _lenient(crd: Object) -> Object:
    """As upstream ships it: no rules in CEL, no minimum of a prefix, no default strategy (before 1.10)."""
    lenient = copy.deepcopy(crd)
    for node in _nodes(lenient["spec"]["versions"][0]["schema"]):
        node.pop("x-kubernetes-validations", None)
        node.pop("minimum", None)
        node.pop("default", None)
    return lenient


def _nodes(value: Any) -> Iterator[Object]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _nodes(inner)


async def replace_crds(client: Client) -> None:
    for crd in Metal3().crds():
        stored = await client.get(CRD, crd["metadata"]["name"])
        await client.replace(CRD, {**crd, "metadata": {**stored["metadata"], **crd["metadata"]}})

    async def refuses() -> bool:
        try:
            await client.create(kinds.POOL, pool("p", ranged({"end": "10.0.0.1"})), "default", dry_run=True)
        except Invalid:
            return True
        return False

    await eventually(refuses, 30)


async def leave(world: World) -> None:
    """The seed's pool with 30 claims of each API, finished by upstream."""
    owner = await world.create(cluster_object("cluster1"))
    labels = {kinds.CLUSTER_LABEL: "cluster1", kinds.PROVIDER_LABEL: "ipam-metal3"}
    reference = {**meta.owner_reference(owner), "controller": False}
    held = {"labels": labels, "finalizers": [kinds.POOL_FINALIZER], "ownerReferences": [reference]}
    made = meta.owner_reference(await world.create(pool("pool", SEED, **held)))
    indexes: dict[str, str] = {}
    for number in range(SERVED):
        # Not in the order a fresh operator would choose, so that a new choice would show.
        indexes |= await _served(world, f"old-{number}", f"192.168.1.{200 - number}", made)
        indexes |= await _served_capi(world, f"capi-{number}", f"192.168.1.{240 - number}", made)
    status = {"indexes": indexes, "lastUpdated": "2026-01-01T00:00:00Z"}
    await world.edit(kinds.POOL, "pool", {"status": status}, "status")


async def _served(world: World, name: str, text: str, the_pool: Object) -> dict[str, str]:
    asked = await world.create(claim(name, finalizers=[kinds.CLAIM_FINALIZER]))
    called = f"test1-prov-{text.replace('.', '-')}"
    owners = [the_pool, meta.owner_reference(asked)]
    held: Object = {"finalizers": [kinds.ADDRESS_FINALIZER], "ownerReferences": owners}
    await world.create(address(called, text, name, **held))
    bound = {"address": {"name": called, "namespace": world.namespace}}
    await world.edit(kinds.CLAIM, name, {"status": bound}, "status")
    return {name: text}


async def _served_capi(world: World, name: str, text: str, the_pool: Object) -> dict[str, str]:
    asked = await world.create(capi_claim(name, finalizers=[kinds.CAPI_CLAIM_FINALIZER]))
    called = f"test1-prov-{text.replace('.', '-')}"
    owners = [the_pool, meta.owner_reference(asked)]
    held: Object = {"finalizers": [kinds.CAPI_ADDRESS_FINALIZER], "ownerReferences": owners}
    await world.create(capi_address(called, text, name, **held))
    await world.edit(CAPI_CLAIM, name, {"status": {"addressRef": {"name": called}}}, "status")
    return {name: text}


async def sneak_in(world: World) -> None:
    """Pools that upstream accepts and we do not."""
    one = {"start": "10.0.0.1", "end": "10.0.0.9"}
    await world.create(
        pool("negative", ranged(one, name_prefix="negative", prefix=-1)),
        pool("long", ranged(one, name_prefix="long", prefix=64)),
        pool("named", ranged(one, name_prefix="Bad_Prefix")),
        pool("endless", ranged({"end": "10.0.0.9"}, one, name_prefix="endless")),
        claim("failed", "pool", finalizers=[kinds.CLAIM_FINALIZER]),
    )
    await world.edit(kinds.CLAIM, "failed", {"status": {"errorMessage": "Exhausted IP Pools"}}, "status")


async def everything(world: World, *resources: Resource) -> dict[str, str]:
    """Every object with its revision."""
    return {
        f"{obj['apiVersion']} {meta.ref(obj)}": meta.resource_version(obj)
        for resource in resources or KINDS
        for obj in await world.list(resource)
    }


async def test_no_address_moves_and_after_a_while_nothing_is_written(upstreams: DevCluster) -> None:
    """P11, P12: no address object is touched, each status at most once; a second start writes nothing."""
    async with admin(upstreams) as client:
        world = World(client, "default")
        addresses = await everything(world, kinds.ADDRESS, CAPI_ADDRESS)
        claims = await everything(world, kinds.CLAIM)
    async with running(upstreams, dialects=("metal3",)) as first:
        world = World(first.client, "default")
        await world.address_of("failed")  # upstream's errors are not for ever
        for number in range(SERVED):
            assert await world.ready_of(f"capi-{number}") == ("True", "AddressAllocated", "")
        await counted(world, 2 * SERVED + 1)  # the pool's status is written last, about once a second
        settled = await quiet(world)
    after = {key: settled[key] for key in addresses}
    assert after == addresses
    old = {key: version for key, version in claims.items() if "failed" not in key}
    assert {key: settled[key] for key in old} == old
    async with running(upstreams, dialects=("metal3",)) as second:
        world = World(second.client, "default")
        spec = ranged({"start": "10.7.0.1", "end": "10.7.0.9"}, name_prefix="fresh")
        await world.create(pool("fresh", spec))
        await world.ask("fresh", "fresh")
        again = await quiet(world)
        assert {key: again[key] for key in settled} == settled
        assert await world.ask_text("newcomer") == ["192.168.0.11"]


async def counted(world: World, used: int) -> None:
    async def told() -> bool:
        status = (await world.get(kinds.POOL, "pool")).get("status") or {}
        return bool((status.get("ipAddresses") or {}).get("used") == used)

    await eventually(told, 30)


async def quiet(world: World) -> dict[str, str]:
    """Everything, once two looks with a whole round of work between them find the same."""

    async def still() -> dict[str, str]:
        before = await everything(world)
        await world.passed()
        after = await everything(world)
        changed = {key for key, version in before.items() if after[key] != version}
        assert not changed
        return before

    return await eventually(still, 30)


async def test_what_upstream_would_have_failed_on_is_told_on_the_claim(upstreams: DevCluster) -> None:
    """M-013, M-014, M-072, M-137, M-139 where such a pool exists already: E6 and E7, and others go on."""
    async with running(upstreams, dialects=("metal3",)) as started:
        world = World(started.client, "default")
        await world.create(capi_claim("m-137", "negative"), capi_claim("m-139", "long"))
        said = "Invalid prefix value, it must be between 0 and 128"
        assert await world.ready_of("m-137") == ("False", "AllocationFailed", said)
        failed = "Failed to create associated IPAddress object"
        assert await world.ready_of("m-139") == ("False", "AllocationFailed", failed)
        assert await world.refused("m-013", "negative") == failed
        assert await world.refused("m-072", "named") == failed
        assert (await world.ask("m-014", "long"))["spec"]["prefix"] == 64  # passed through, as upstream does
        assert await world.ask_text("m-008", pool="endless") == ["10.0.0.1"]
        await eventually(lambda: is_explained(world, "m-072", failed))
        for name, resource in (("m-013", kinds.CLAIM), ("m-137", CAPI_CLAIM)):
            await world.remove(resource, name)


async def is_explained(world: World, name: str, text: str) -> bool:
    """The Event has the API server's own words behind upstream's."""
    said = [event["message"] for event in await world.list(EVENTS) if event["involvedObject"]["name"] == name]
    return any(message.startswith(f"{text}: ") and "Bad_Prefix" in message for message in said)


async def test_who_lost_its_object_while_nobody_looked_comes_before_newcomers(upstreams: DevCluster) -> None:
    """I1: an older claim waits, and the one address that seems to be free is shown by another claim."""
    async with admin(upstreams) as client:
        world = World(client, "default")
        await world.create(claim("older", "last"))
        spec = ranged({"start": "10.8.0.1", "end": "10.8.0.1"}, name_prefix="last")
        await world.create(pool("last", spec), claim("shows", "last", finalizers=[kinds.CLAIM_FINALIZER]))
        bound = {"address": {"name": "last-10-8-0-1", "namespace": "default"}}
        await world.edit(kinds.CLAIM, "shows", {"status": bound}, "status")
    async with running(upstreams, dialects=("metal3",)) as started:
        world = World(started.client, "default")
        assert await world.error_of("older") == "Exhausted IP Pools"
        again = await eventually(lambda: world.get(kinds.ADDRESS, "last-10-8-0-1"))
        assert again["spec"]["claim"]["name"] == "shows"


async def test_a_repaired_pool_serves_whoever_it_failed(upstreams: DevCluster) -> None:
    """No error is for ever unless its cause is."""
    async with running(upstreams, dialects=("metal3",)) as started:
        world = World(started.client, "default")
        await world.create(capi_claim("repaired", "negative"))
        assert (await world.ready_of("repaired"))[0] == "False"
        await world.edit(kinds.POOL, "negative", {"spec": {"prefix": 24}})
        assert (await world.capi_address_of("repaired"))["spec"]["prefix"] == 24


async def test_an_existing_pool_keeps_its_crds_fields(upstreams: DevCluster) -> None:
    """`indexes` stays as upstream wrote it, usage comes beside it; M-026: a strategy may be written down."""
    async with running(upstreams, dialects=("metal3",), crds=crds_of("metal3")) as started:
        world = World(started.client, "default")

        async def counted() -> bool:
            status = (await world.get(kinds.POOL, "pool"))["status"]
            assert status["indexes"]["old-0"] == "192.168.1.200"
            assert status["ipAddresses"]["used"] == len(status["indexes"]) >= 2 * SERVED
            return bool(meta.find_condition(status["conditions"], "Ready"))

        await eventually(counted)
        await world.edit(kinds.POOL, "pool", {"spec": {"allocationStrategy": "sequential"}})
