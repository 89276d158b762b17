"""Contract 6.8, first half: the pool's Cluster, and pause by whatever says so."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.metal3 import (
    CAPI_CLAIM,
    CLUSTER,
    PAUSED,
    SOON,
    A,
    World,
    address,
    capi_claim,
    claim,
    cluster_object,
    pool,
    waits,
)
from tests.support.operator import eventually

from berth.dialects.metal3 import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

LINKED = {**A, "clusterName": "cluster1"}
LABELS = {"cluster.x-k8s.io/cluster-name": "cluster1", "cluster.x-k8s.io/provider": "ipam-metal3"}


def version(obj: dict[str, Any]) -> dict[str, str]:
    return {f"{obj['apiVersion']} {meta.ref(obj)}": meta.resource_version(obj)}


async def versions(world: World) -> dict[str, str]:
    """Every object of the dialect with its revision: equal means that nothing was written."""
    found: dict[str, str] = {}
    for resource in (kinds.POOL, kinds.CLAIM, kinds.ADDRESS, CAPI_CLAIM, kinds.CAPI_ADDRESSES[0]):
        for obj in await world.list(resource):
            if not obj["metadata"]["name"].startswith("passed"):
                found |= version(obj)
    return found


async def stays_still(world: World, *more: dict[str, Any]) -> None:
    """Whatever is asked for now, nothing is written: everything stays as it was found or stored."""
    before = await versions(world)
    for one in more:
        before |= version(await world.create(one))
    await world.passed()
    assert await versions(world) == before


async def linked(world: World) -> dict[str, Any]:
    """The pool once it carries the labels of its cluster."""

    async def labelled() -> dict[str, Any]:
        found = await world.get(kinds.POOL, "pool")
        assert meta.labels(found) == LABELS
        return found

    return await eventually(labelled)


async def test_a_pool_waits_for_its_cluster(world: World) -> None:
    """M-112: labels are there, no finalizer; the claim is not served, and says why."""
    await world.create(pool("pool", LINKED), claim("c1"), capi_claim("m"))
    await linked(world)
    here = world.namespace
    text = f"Cluster {here}/cluster1 of IPPool {here}/pool does not exist yet"
    assert await world.ready_of("m") == ("False", "PoolNotReady", text)
    await world.passed()
    await waits(world, "c1", "ClusterNotFound")
    assert meta.finalizers(await world.get(kinds.POOL, "pool")) == []


async def test_it_serves_as_soon_as_the_cluster_is_there(world: World) -> None:
    """M-113: upstream takes up to ten minutes."""
    await world.create(pool("pool", LINKED), claim("c1"))
    await linked(world)
    await world.create(cluster_object("cluster1"))
    assert (await world.address_of("c1", SOON))["spec"]["address"] == "10.0.0.10"


async def test_labels_and_owner_come_from_the_cluster(world: World) -> None:
    """M-114."""
    stored = await world.create(cluster_object("cluster1"))
    await world.create(pool("pool", LINKED))
    found = await linked(world)
    assert found["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "name": "cluster1",
            "uid": meta.uid(stored),
            "controller": False,
        }
    ]


async def test_a_paused_cluster_stops_everything_but_the_link(world: World) -> None:
    """M-115, M-116: labels and owner are written; the claim is served as soon as the pause is over."""
    await world.create(cluster_object("cluster1", paused=True), pool("pool", LINKED))
    assert (await linked(world))["metadata"]["ownerReferences"]
    await stays_still(world, claim("c1"), capi_claim("m"))
    assert meta.finalizers(await world.get(kinds.CLAIM, "c1")) == []
    await world.edit(CLUSTER, "cluster1", {"spec": {"paused": False}})
    await world.address_of("c1", SOON)
    await world.capi_address_of("m", SOON)


async def test_nothing_is_released_while_paused(world: World) -> None:
    """M-117: claim, address and pool stay until the pause is over."""
    await world.create(cluster_object("cluster1"), pool("pool", LINKED))
    await world.ask("c1")
    await world.ask_capi("m")
    await world.shows({"c1": "10.0.0.10", "m": "10.0.0.11"})
    await world.edit(CLUSTER, "cluster1", {"spec": {"paused": True}})
    await world.passed()  # the pause is seen
    before = await versions(world)
    for resource, name in ((kinds.CLAIM, "c1"), (CAPI_CLAIM, "m"), (kinds.POOL, "pool")):
        going = await world.client.delete(resource, name, world.namespace)
        assert going is not None
        before |= version(going)
    await world.passed()
    assert await versions(world) == before
    await world.edit(CLUSTER, "cluster1", {"spec": {"paused": False}})
    for resource, name in ((kinds.CLAIM, "c1"), (CAPI_CLAIM, "m"), (kinds.POOL, "pool")):
        await world.gone(resource, name, SOON)


@pytest.mark.parametrize("link", ["M-118", "M-120"])
async def test_a_pool_is_paused_by_its_annotation(world: World, link: str) -> None:
    """M-118, M-120: whatever its value, with or without a cluster."""
    spec = A
    if link == "M-118":
        spec = LINKED
        await world.create(cluster_object("cluster1"))
    await stays_still(
        world, pool("pool", spec, annotations={kinds.PAUSED: "false"}), claim("c1"), capi_claim("m")
    )
    await world.annotate(kinds.POOL, "pool", kinds.PAUSED, None)
    await world.address_of("c1", SOON)
    await world.capi_address_of("m", SOON)


async def test_a_cluster_is_paused_by_its_annotation_too(world: World) -> None:
    """M-119: upstream serves."""
    await world.create(cluster_object("cluster1", annotations=PAUSED), pool("pool", LINKED))
    await linked(world)
    await stays_still(world, claim("c1"))
    await world.annotate(CLUSTER, "cluster1", kinds.PAUSED, None)
    await world.address_of("c1", SOON)


async def test_a_paused_claim_is_left_alone_among_others(world: World) -> None:
    """M-121: upstream serves it with the next one; here it waits for its own annotation to go."""
    await world.create(pool("pool", A))
    await world.create(claim("c1", annotations=PAUSED), capi_claim("m", annotations=PAUSED))
    await world.ask("c2")
    await world.passed()
    for resource, name in ((kinds.CLAIM, "c1"), (CAPI_CLAIM, "m")):
        untouched = await world.get(resource, name)
        assert "status" not in untouched
        assert meta.finalizers(untouched) == []
    await world.annotate(kinds.CLAIM, "c1", kinds.PAUSED, None)
    await world.annotate(CAPI_CLAIM, "m", kinds.PAUSED, None)
    await world.address_of("c1", SOON)
    await world.capi_address_of("m", SOON)


async def test_a_pool_can_go_after_its_cluster(world: World) -> None:
    """M-122: also with a claim that is deleted after the cluster is gone."""
    await world.create(cluster_object("cluster1"), pool("pool", LINKED))
    await world.ask("c1")
    await world.remove(CLUSTER, "cluster1")
    await world.remove(kinds.CLAIM, "c1")
    await world.shows({})
    await world.remove(kinds.POOL, "pool")


async def test_who_was_served_stays_served_when_the_cluster_is_gone(world: World) -> None:
    """X-28: Ready is in step with the address; what hinders newcomers is not written beside it."""
    await world.create(cluster_object("cluster1"), pool("pool", LINKED))
    await world.ask("c1")
    await world.ask_capi("m")
    both = ((kinds.CLAIM, "c1"), (CAPI_CLAIM, "m"))
    before = [(await world.get(*one))["status"] for one in both]
    await world.remove(CLUSTER, "cluster1")
    for resource, name in both:
        await world.edit(resource, name, {"metadata": {"labels": {"touched": "yes"}}})
    await world.create(capi_claim("late"))
    assert (await world.ready_of("late"))[1] == "PoolNotReady"
    await world.passed()
    assert [(await world.get(*one))["status"] for one in both] == before


async def test_who_upstream_served_for_another_namespaces_pool_keeps_its_address(world: World) -> None:
    """M-074: it is not told beside its address that it cannot have one."""
    asking = claim("c1", annotations=PAUSED, finalizers=[kinds.CLAIM_FINALIZER])
    asking["spec"]["pool"]["namespace"] = "elsewhere"
    await world.create(pool("pool", A), address("a-10-0-0-10", "10.0.0.10", "c1"), asking)
    bound = {"address": {"name": "a-10-0-0-10", "namespace": world.namespace}}
    await world.edit(kinds.CLAIM, "c1", {"status": bound}, "status")
    await world.annotate(kinds.CLAIM, "c1", kinds.PAUSED, None)
    await world.passed()
    assert (await world.get(kinds.CLAIM, "c1"))["status"] == bound
    await world.remove(kinds.CLAIM, "c1")


async def test_a_cluster_api_claim_waits_for_the_cluster_it_names_itself(world: World) -> None:
    """Contract 4.6: by `clusterName`, else by label; paused by field or annotation; missing means wait."""
    await world.create(pool("pool", A))
    await world.create(capi_claim("m", cluster="own"), capi_claim("n", labels={kinds.CLUSTER_LABEL: "own"}))
    text = f"Cluster {world.namespace}/own of this IPAddressClaim does not exist yet"
    assert await world.ready_of("m") == ("False", "PoolNotReady", text)
    await world.create(cluster_object("own", paused=True))
    await world.passed()
    await stays_still(world)
    await world.edit(CLUSTER, "own", {"spec": {"paused": False}})
    await world.capi_address_of("m", SOON)
    await world.capi_address_of("n", SOON)


async def test_a_cluster_made_again_becomes_the_owner_anew(world: World) -> None:
    """X-34: a stale UID would let garbage collection take the pool."""
    await world.create(cluster_object("cluster1"), pool("pool", LINKED))
    await linked(world)
    await world.remove(CLUSTER, "cluster1")
    again = await world.create(cluster_object("cluster1"))

    async def refreshed() -> bool:
        return [o["uid"] for o in meta.owners(await world.get(kinds.POOL, "pool"))] == [meta.uid(again)]

    await eventually(refreshed)


async def test_another_cluster_name_takes_the_old_ones_place(world: World) -> None:
    """X-33: the old owner goes with it."""
    await world.create(cluster_object("cluster1"), cluster_object("cluster2"), pool("pool", LINKED))
    await linked(world)
    await world.edit(kinds.POOL, "pool", {"spec": {"clusterName": "cluster2"}})

    async def moved() -> bool:
        found = await world.get(kinds.POOL, "pool")
        assert meta.labels(found)[kinds.CLUSTER_LABEL] == "cluster2"
        return [owner["name"] for owner in meta.owners(found)] == ["cluster2"]

    await eventually(moved)


@pytest.mark.parametrize("name", ["nowhere", None], ids=["missing", "none"])
async def test_the_old_owner_goes_also_where_no_other_takes_its_place(world: World, name: str | None) -> None:
    """X-33: else garbage collection takes the pool with a Cluster it no longer belongs to."""
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "u"}
    await world.create(cluster_object("cluster1"), pool("pool", LINKED, ownerReferences=[theirs]))
    await linked(world)
    await world.edit(kinds.POOL, "pool", {"spec": {"clusterName": name}})

    async def left() -> bool:
        found = await world.get(kinds.POOL, "pool")
        assert [owner["name"] for owner in meta.owners(found)] == ["theirs"]
        return meta.labels(found).get(kinds.CLUSTER_LABEL) == name

    await eventually(left)


async def test_an_owner_set_by_a_person_stays(world: World) -> None:
    """A pool without `clusterName` may still be made to move with a Cluster."""
    owner = meta.owner_reference(await world.create(cluster_object("cluster1")))
    labels = {kinds.CLUSTER_LABEL: "cluster1"}
    await world.create(pool("pool", A, ownerReferences=[owner], labels=labels))
    await world.ask("c1")
    found = await world.get(kinds.POOL, "pool")
    assert (meta.owners(found), meta.labels(found)) == ([owner], labels)
