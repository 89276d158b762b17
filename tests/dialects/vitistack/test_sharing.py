"""Sharing, anycast and pools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.support import metallb
from tests.support.operator import eventually
from tests.support.vitistack import World, address_of, emptied, fresh, of, operating, prepared, service

from berth.devcluster import DevCluster
from berth.dialects.vitistack import Vitistack, kinds
from berth.kube import meta
from berth.kube.client import Client
from berth.settings import Settings

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def warned(cluster: DevCluster, manifest: str) -> str:
    """What kubectl says beside its output when it creates this."""
    process = await asyncio.create_subprocess_exec(
        str(cluster.binaries["kubectl"]),
        *("--kubeconfig", str(cluster.kubeconfig), "create", "-f", "-"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said = (await process.communicate(manifest.encode()))[1].decode()
    assert process.returncode == 0, said
    return said


async def test_another_key_in_the_same_namespace_is_admitted_but_not_served(
    cluster: DevCluster, world: World
) -> None:
    """V-111: kubectl shows a warning, and MetalLB does not assign."""
    address = address_of(await world.create("first"))

    async def is_served() -> bool:
        return bool((await world.get("first"))["status"]["loadBalancer"].get("ingress"))

    assert await eventually(is_served, 60)
    other = await world.create("second", annotations={"addresses": address}, port=443)
    assert address_of(other) == address
    assert of(other, "allow-local-shared-ip") != of(await world.get("first"), "allow-local-shared-ip")
    await world.create("later")

    async def is_later_served() -> bool:
        return bool((await world.get("later"))["status"]["loadBalancer"].get("ingress"))

    assert await eventually(is_later_served, 60)
    assert not (await world.get("second"))["status"]["loadBalancer"].get("ingress")
    manifest = json.dumps(service("third", world.namespace, annotations={"addresses": address}, port=444))
    world.made.append((world.namespace, "third"))
    assert "is used by a Service with another" in await warned(cluster, manifest)


async def test_a_pool_entry_removed_by_hand_comes_back(world: World) -> None:
    """V-119"""
    address = address_of(await world.create())
    pool = await world.client.get(kinds.POOL, "inet", metallb.NAMESPACE)
    left = [text for text in pool["spec"]["addresses"] if text != address] or ["192.0.2.200/32"]
    await world.client.patch(kinds.POOL, "inet", {"spec": {"addresses": left}}, metallb.NAMESPACE)

    async def is_back() -> bool:
        return await world.pooled(address)

    assert await eventually(is_back, 60)


async def test_a_pool_of_our_own_goes_with_its_last_address(world: World) -> None:
    """V-116, V-120: and advertisements are nothing to us, we have no right to read them even."""
    rules = (*Vitistack().rules(), *Vitistack().local_rules(Settings())[metallb.NAMESPACE])
    assert not [rule for rule in rules if "advertisements" in str(rule)]
    made = await world.create(annotations={"zone": "hnet-public"})
    assert await world.pool("hnet-public") == [address_of(made)]
    await world.delete()

    async def is_gone() -> bool:
        return await world.pool("hnet-public") is None

    assert await eventually(is_gone, 60)


async def test_a_crowded_pool_is_written_as_ranges_and_follows_every_service(world: World) -> None:
    """V-115, V-116, V-117: beyond 32 they are merged, and each is covered as long as its Service lives."""
    theirs = "198.51.100.7/32"
    names = [f"web-{number}" for number in range(100)]
    made = await asyncio.gather(*(world.create(name, annotations={"zone": "hnet-private"}) for name in names))
    addresses = [address_of(one) for one in made]
    pool = await world.pool("hnet-private") or []
    assert len(set(addresses)) == 100
    assert all([await world.pooled(one, "hnet-private") for one in addresses])
    assert len(pool) < 45
    pool.append(theirs)
    await world.client.patch(kinds.POOL, "hnet-private", {"spec": {"addresses": pool}}, metallb.NAMESPACE)
    gone, left = range(1, 100, 2), range(0, 100, 2)
    await asyncio.gather(*(world.delete(names[number]) for number in gone))

    async def is_let_go() -> bool:
        return not any([await world.pooled(addresses[number], "hnet-private") for number in gone])

    assert await eventually(is_let_go, 60)
    assert all([await world.pooled(addresses[number], "hnet-private") for number in left])
    await asyncio.gather(*(world.delete(names[number]) for number in left))

    async def is_theirs_alone() -> bool:
        return await world.pool("hnet-private") == [theirs]

    assert await eventually(is_theirs_alone, 60)
    found = await world.client.get(kinds.POOL, "hnet-private", metallb.NAMESPACE)
    assert kinds.MERGED not in meta.annotations(found)
    await world.client.delete(kinds.POOL, "hnet-private", metallb.NAMESPACE)


async def test_what_the_administrator_put_there_stays(world: World) -> None:
    """V-117: a range added to our pool, and a pool that was there before."""
    made = await world.create(annotations={"zone": "hnet-public"})
    both = [address_of(made), "198.51.100.0/28"]
    await world.client.patch(kinds.POOL, "hnet-public", {"spec": {"addresses": both}}, metallb.NAMESPACE)
    await world.delete()

    async def is_left() -> bool:
        return await world.pool("hnet-public") == ["198.51.100.0/28"]

    assert await eventually(is_left, 60)
    await world.client.delete(kinds.POOL, "hnet-public", metallb.NAMESPACE)
    theirs = {
        "apiVersion": "metallb.io/v1beta1",
        "kind": "IPAddressPool",
        "metadata": {"name": "hnet-public", "namespace": metallb.NAMESPACE, "labels": {"their": "own"}},
        "spec": {"addresses": ["83.118.128.0/30"], "autoAssign": True},
    }
    await world.client.create(kinds.POOL, theirs)
    covered = await world.create("covered", annotations={"zone": "hnet-public"})
    address = address_of(covered).partition("/")[0]
    assert address in ("83.118.128.0", "83.118.128.1", "83.118.128.2", "83.118.128.3")
    assert await world.pool("hnet-public") == ["83.118.128.0/30"]
    await world.delete("covered")

    async def is_free() -> bool:
        return address not in world.api.addresses()

    assert await eventually(is_free, 60)
    found = await world.client.get(kinds.POOL, "hnet-public", metallb.NAMESPACE)
    assert found["metadata"]["labels"] == {"their": "own"}
    assert found["spec"]["autoAssign"] is True
    await world.client.delete(kinds.POOL, "hnet-public", metallb.NAMESPACE)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def elsewhere(stage: World) -> AsyncIterator[Client]:
    """A second control plane with an operator of its own, at the same IPAM-API."""
    async with (
        DevCluster() as other,
        prepared(other) as client,
        operating(other, stage.api),
    ):
        yield client


async def test_two_clusters_announce_one_address(world: World, elsewhere: Client) -> None:
    """V-112, V-113: the same value of a secret, each cluster its own entry."""
    await world.secret()
    address = address_of(await world.create(annotations={"secret": "my-secret"}))
    there = await fresh(World(elsewhere, world.api, ""))
    await there.secret()
    wishes = {"secret": "my-secret", "addresses": address}
    assert address_of(await there.create("my-service", annotations=wishes)) == address
    assert world.api.holders(address) == 2
    await world.delete()

    async def one_is_left() -> bool:
        return world.api.holders(address) == 1

    assert await eventually(one_is_left, 60)
    assert world.api.entries(address)["my-service"].active
    await emptied(there)
