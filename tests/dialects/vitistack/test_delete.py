"""Type changes and deletion."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.support.operator import eventually, gone
from tests.support.vitistack import SYSTEM, World, address_of, emptied, fresh, of

from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
DAY_MS = 24 * 3600 * 1000


async def is_free(world: World, address: str, seconds: float = 60) -> None:
    async def free() -> bool:
        return address.partition("/")[0] not in world.api.addresses()

    assert await eventually(free, seconds)


async def expiry(world: World, address: str, name: str = "my-service") -> int:
    async def found() -> int:
        entry = world.api.entries(address).get(name)
        return (entry.expires_at or 0) if entry is not None else 1

    return await eventually(found, 60)


async def left_pool(world: World, address: str) -> None:
    async def has_left() -> bool:
        return not await world.pooled(address)

    assert await eventually(has_left, 60)


async def test_leaving_the_type_releases_and_coming_back_recalls(world: World) -> None:
    """V-080, V-082, V-083"""
    made = await world.create(annotations={"retention-period-days": "7"})
    address = address_of(made)

    async def is_shown() -> bool:
        return bool((await world.get())["status"]["loadBalancer"].get("ingress"))

    assert await eventually(is_shown, 60)
    now = await world.patch({"spec": {"type": "ClusterIP"}})
    assert now["spec"]["type"] == "ClusterIP"
    assert not set(meta.annotations(now)) & set(kinds.METALLB)
    assert address_of(now) == address
    assert await expiry(world, address) > (time.time() + 6 * 24 * 3600) * 1000
    await left_pool(world, address)
    back = await world.patch({"spec": {"type": "LoadBalancer"}})
    assert address_of(back) == address
    assert world.api.entries(address)["my-service"].active
    assert await world.pooled(address)
    await world.patch({"spec": {"type": "ClusterIP"}})
    first = await expiry(world, address)
    await world.delete()
    await world.passed()
    assert await expiry(world, address) == first


async def test_a_lost_address_is_told_when_the_type_comes_back(world: World) -> None:
    """V-084"""
    made = await world.create()
    address = address_of(made)
    await world.patch({"spec": {"type": "ClusterIP"}})
    await is_free(world, address)
    await world.secret()
    await world.create("thief", annotations={"addresses": address, "secret": "my-secret"})
    message = await world.not_patched({"spec": {"type": "LoadBalancer"}})
    assert "no matching address found with the provided secret, zone and address" in message
    body = {"spec": {"type": "LoadBalancer"}, "metadata": {"annotations": {kinds.ADDRESSES: ""}}}
    assert address_of(await world.patch(body)) not in ("", address)


async def test_a_cluster_ip_service_becomes_a_load_balancer(world: World) -> None:
    """V-085, V-086"""
    await world.create(type="NodePort")
    before = world.history()
    await world.patch({"spec": {"type": "ClusterIP"}})
    assert world.history() == before
    now = await world.patch({"spec": {"type": "LoadBalancer"}})
    assert address_of(now)
    assert of(now, "secret") == "default"


async def test_a_deleted_service_gives_its_address_back(world: World) -> None:
    """V-090: at once, with its pool entry and its record."""
    address = address_of(await world.create())
    await world.delete()
    started = time.monotonic()
    await expiry(world, address)
    assert time.monotonic() - started < 30  # 5 s on a machine that has one for us
    await is_free(world, address)
    await left_pool(world, address)

    async def no_record() -> bool:
        return not [one for one in await world.records() if one["data"]["namespace"] == world.namespace]

    assert await eventually(no_record, 60)

    async def is_told() -> bool:
        return "AddressReleased" in await world.events()

    assert await eventually(is_told, 60)


async def test_retention_keeps_an_address_for_its_service(world: World) -> None:
    """V-091, V-092, V-093, V-094"""
    await world.secret()
    wishes = {"retention-period-days": "7", "secret": "my-secret"}
    address = address_of(await world.create(annotations=wishes))
    await world.delete()
    due = await expiry(world, address)
    assert abs(due - (time.time() * 1000 + 7 * DAY_MS)) < 60_000
    again = await world.create(annotations=wishes)
    assert address_of(again) == address
    assert world.api.entries(address)["my-service"].active

    async def is_recalled() -> bool:
        return "AddressRecalled" in await world.events()

    assert await eventually(is_recalled, 60)
    await world.delete()
    await expiry(world, address)
    other = await fresh(world)
    await other.secret()
    moved = await other.create("moved", annotations={"addresses": address, "secret": "my-secret"})
    assert address_of(moved) == address
    message = await world.refused("thief", annotations={"addresses": address})
    assert "Please verify f.ex secret" in message
    await other.delete("moved")


async def test_a_refused_recall_does_not_shorten_retention(world: World) -> None:
    """H-07 and 3.10: what a refused request recalled is retained as before."""
    address = address_of(await world.create(annotations={"retention-period-days": "7"}))
    await world.delete()
    due = await expiry(world, address)
    await world.refused(annotations={"ip-family": "dual", "zone": "hnet-private"})
    wishes = {"ip-family": "dual", "addresses": "192.0.2.7", "retention-period-days": "7"}
    await world.refused(annotations=wishes)
    assert world.api.entries(address)["my-service"].expires_at == due


async def test_of_two_that_share_the_second_keeps_the_address(world: World) -> None:
    """V-095, V-110"""
    first = await world.create("first")
    address, key = address_of(first), of(first, "allow-local-shared-ip")
    wishes = {"addresses": address, "allow-local-shared-ip": key}
    await world.create("second", annotations=wishes, port=443)
    assert set(world.api.entries(address)) == {"first", "second"}

    async def both_served() -> bool:
        found = [(await world.get(name))["status"]["loadBalancer"] for name in ("first", "second")]
        return all(one.get("ingress") for one in found)

    assert await eventually(both_served, 60)
    await world.delete("first")
    await expiry(world, address, "first")
    assert world.api.entries(address)["second"].active
    assert await world.pooled(address)


async def test_two_that_share_and_go_together_leave_nothing(world: World) -> None:
    """V-096"""
    first = await world.create("first")
    address, key = address_of(first), of(first, "allow-local-shared-ip")
    wishes = {"addresses": address, "allow-local-shared-ip": key}
    await world.create("second", annotations=wishes, port=443)
    await asyncio.gather(world.delete("first"), world.delete("second"))
    await is_free(world, address)
    await left_pool(world, address)


async def test_a_deletion_with_the_api_down_is_made_up_for(world: World) -> None:
    """V-097, T23"""
    addresses = [address_of(await world.create(f"web-{number}")) for number in range(3)]
    world.api.stop()
    try:
        for number in range(3):
            await world.delete(f"web-{number}")
            await gone(world.client, kinds.SERVICE, f"web-{number}", world.namespace, seconds=60)
    finally:
        world.api.start()
    for address in addresses:
        await is_free(world, address)


async def test_a_deletion_after_its_secret_releases(world: World) -> None:
    """V-098"""
    await world.secret()
    address = address_of(await world.create(annotations={"secret": "my-secret"}))
    mine = [one for one in await world.records() if one["data"]["namespace"] == world.namespace]
    copy = mine[0]["metadata"]["name"]
    assert (await world.client.get(kinds.SECRET, copy, SYSTEM))["type"] == "Opaque"
    await world.client.delete(kinds.SECRET, "my-secret", world.namespace)
    await world.delete()
    await is_free(world, address)
    await gone(world.client, kinds.SECRET, copy, SYSTEM, seconds=60)


async def test_a_namespace_goes_with_everything_in_it(cluster: DevCluster, world: World) -> None:
    """V-100: any order of kinds, in the normal time."""
    await world.secret()
    made = [
        address_of(await world.create(f"web-{number}", annotations={"secret": "my-secret"}))
        for number in range(3)
    ]
    manager = await cluster.start_controller_manager("namespace-controller")
    try:
        await world.client.delete(kinds.NAMESPACE, world.namespace)
        await gone(world.client, kinds.NAMESPACE, world.namespace, seconds=120)
    finally:
        await manager.stop(5)
    for address in made:
        await is_free(world, address)


async def test_a_finalizer_of_others_keeps_the_address(world: World) -> None:
    """V-101, T22"""
    address = address_of(await world.create(finalizers=["example.com/hold"]))
    await world.delete()

    async def is_deleting() -> bool:
        return meta.is_deleting(await world.get())

    assert await eventually(is_deleting, 60)
    await world.passed()
    assert world.api.entries(address)["my-service"].active
    await world.patch({"metadata": {"finalizers": None}})
    await is_free(world, address)


async def test_a_dry_run_deletion_does_nothing(world: World) -> None:
    """V-104, V-105"""
    address = address_of(await world.create())
    path = kinds.SERVICE.path(world.namespace, "my-service")
    await world.client.raw("DELETE", path, params={"dryRun": "All"})
    await world.create("plain", type="ClusterIP")
    before = world.history()
    await world.delete("plain")
    assert world.history() == before
    await world.passed()
    assert world.api.entries(address)["my-service"].active


async def test_another_namespace_cannot_join_with_the_default_secret(world: World) -> None:
    """V-106, H-37: only with the same sharing key, whether in use or retained."""
    first = await world.create(annotations={"retention-period-days": "7"})
    address, key = address_of(first), of(first, "allow-local-shared-ip")
    other = await fresh(world)
    message = await other.refused(annotations={"addresses": address})
    assert address.partition("/")[0] in message
    assert world.namespace not in message
    assert world.api.holders(address) == 1
    await world.delete()
    await expiry(world, address)
    assert "another namespace" in await other.refused(annotations={"addresses": address})
    wishes = {"addresses": address, "allow-local-shared-ip": key}
    assert address_of(await other.create("friend", annotations=wishes)) == address
    await other.delete("friend")


async def test_of_two_namespaces_at_the_same_moment_at_most_one_gets_it(world: World) -> None:
    """V-106, H-37: neither was there when the other was looked for."""
    other = await fresh(world)
    for number in range(4):
        address = world.free_address()
        wishes = {"addresses": address}
        found = await asyncio.gather(
            *(one.create(f"web-{number}", annotations=wishes) for one in (world, other)),
            return_exceptions=True,
        )
        admitted = [one for one in found if not isinstance(one, BaseException)]
        told = [str(one) for one in found if isinstance(one, BaseException)]
        assert len(admitted) <= 1
        assert all("is used or retained in another namespace" in text for text in told)
        assert world.api.holders(address) == len(admitted)
    await emptied(other)


async def test_a_quick_recreation_keeps_a_good_entry(world: World) -> None:
    """T22: deleted and made again at once, ten times; the last one holds what it lists."""
    made: dict[str, Any] = {}
    for _ in range(10):
        made = await world.create()
        if _ < 9:
            await world.delete()

    async def holds() -> bool:
        entry = world.api.entries(address_of(made)).get("my-service")
        return entry is not None and entry.active and entry.uid == meta.uid(made)

    assert await eventually(holds, 60)
