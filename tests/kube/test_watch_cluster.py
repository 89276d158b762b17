"""List and watch on the real API server, through its deaths."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.kube.proxy import proxied
from tests.kube.scripted import CONFIGMAPS
from tests.kube.waiting import eventually

from berth import errors
from berth.devcluster import ClusterOptions, DevCluster
from berth.kube import auth, meta
from berth.kube.client import Client
from berth.kube.watch import WatchSettings, reflect

pytestmark = pytest.mark.cluster


class Store:
    """A sink that keeps what is there, and counts how it came to know."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.heard: set[tuple[str, str]] = set()  # type and resource version of every event
        self.lists = 0
        self.restarts = 0

    def replace(self, items: list[dict[str, Any]], resource_version: str) -> None:
        self.lists += 1
        self.objects = {item["metadata"]["name"]: item for item in items}

    def reset(self, items: list[dict[str, Any]], resource_version: str) -> None:
        self.restarts += 1
        self.replace(items, resource_version)

    def apply(self, type: str, obj: dict[str, Any]) -> None:
        self.heard.add((type, meta.resource_version(obj)))
        if type == "DELETED":
            self.objects.pop(obj["metadata"]["name"], None)
        else:
            self.objects[obj["metadata"]["name"]] = obj

    def versions(self) -> dict[str, str]:
        return {name: meta.resource_version(obj) for name, obj in self.objects.items()}


@contextlib.asynccontextmanager
async def reflected(
    client: Client, namespace: str, settings: WatchSettings | None = None
) -> AsyncIterator[Store]:
    store = Store()
    task = asyncio.create_task(reflect(client, CONFIGMAPS, store, namespace=namespace, settings=settings))
    try:
        await eventually(lambda: store.lists > 0)
        yield store
    finally:
        task.cancel()
        await asyncio.wait([task])


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def in_step(store: Store, client: Client, namespace: str, seconds: float = 60.0) -> None:
    """The store holds exactly what the server holds, of the same versions."""
    listing = await client.list(CONFIGMAPS, namespace)
    expected = {item["metadata"]["name"]: meta.resource_version(item) for item in listing.items}
    await eventually(lambda: store.versions() == expected, seconds)


async def test_every_change_is_heard(client: Client, namespace: str) -> None:
    await client.create(CONFIGMAPS, configmap("before"), namespace)
    async with reflected(client, namespace) as store:
        assert list(store.objects) == ["before"]
        made = await client.create(CONFIGMAPS, configmap("a"), namespace)
        changed = await client.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, namespace)
        await client.delete(CONFIGMAPS, "before", namespace)
        await eventually(lambda: list(store.objects) == ["a"])
        assert ("ADDED", meta.resource_version(made)) in store.heard
        assert ("MODIFIED", meta.resource_version(changed)) in store.heard
        assert store.objects["a"]["data"] == {"x": "1"}
        assert store.lists == 1


async def test_a_watch_gets_bookmarks_and_ends_at_its_timeout(client: Client, namespace: str) -> None:
    """The server sends one shortly before the end, at the version of the kind's last change anywhere."""
    listing = await client.list(CONFIGMAPS, namespace)
    newest = await client.create(CONFIGMAPS, configmap("a"), namespace)
    stream = client.watch(CONFIGMAPS, namespace, resource_version=listing.resource_version, timeout_seconds=5)
    events = []
    async for event in stream:
        events.append(event)
        if event.type == "ADDED":
            newest = await client.create(CONFIGMAPS, configmap(f"{namespace}-elsewhere"), "default")
    types = [event.type for event in events]
    assert types.count("ADDED") == 1
    assert types[-1] == "BOOKMARK"
    assert int(meta.resource_version(events[-1].object)) >= int(meta.resource_version(newest))


async def test_an_object_of_a_megabyte_is_one_event(client: Client, namespace: str) -> None:
    async with reflected(client, namespace) as store:
        await client.create(CONFIGMAPS, configmap("big", text="ü" * 450_000), namespace)
        await eventually(lambda: "big" in store.objects)
        assert len(store.objects["big"]["data"]["text"]) == 450_000


class Writer:
    """Keeps changing objects through every outage; knows what the server acknowledged."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self.acknowledged: set[str] = set()

    async def reaches(self, goal: int) -> None:
        await eventually(lambda: len(self.acknowledged) > goal)

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            for write in (self._create, self._change, self._delete):
                try:
                    await write(number)
                except errors.KubeError:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.002)

    async def _create(self, number: int) -> None:
        made = await self._client.create(CONFIGMAPS, configmap(f"c{number}"), self._namespace)
        self.acknowledged.add(meta.resource_version(made))

    async def _change(self, number: int) -> None:
        change = {"data": {"x": str(number)}}
        changed = await self._client.patch(CONFIGMAPS, f"c{number}", change, self._namespace)
        self.acknowledged.add(meta.resource_version(changed))

    async def _delete(self, number: int) -> None:
        if number % 3 == 0:
            await self._client.delete(CONFIGMAPS, f"c{number}", self._namespace)


@pytest.mark.parametrize("part", ["apiserver", "etcd"])
async def test_a_watch_survives_kill_9_with_nothing_missed(
    cluster: DevCluster, client: Client, namespace: str, part: str
) -> None:
    restart: Callable[[], Any] = getattr(cluster, f"restart_{part}")
    async with reflected(client, namespace) as store:
        writer = Writer(client, namespace)
        task = asyncio.create_task(writer.run())
        for round_ in range(2):
            goal = len(writer.acknowledged) + 100
            await writer.reaches(goal)
            await restart()
            assert not task.done(), round_
        goal = len(writer.acknowledged) + 50
        await writer.reaches(goal)
        task.cancel()
        await asyncio.wait([task])
        await in_step(store, client, namespace)
        if store.lists == 1:
            # Without a second list nothing can have been skipped: every acknowledged write was an event.
            heard = {version for _, version in store.heard}
            assert writer.acknowledged <= heard


async def test_a_version_the_store_has_forgotten_is_listed_again() -> None:
    """The server has no cache and compacts every second; we are cut off until our version is compacted."""
    flags = ("--etcd-compaction-interval=1s", "--watch-cache=false")
    async with (
        DevCluster(ClusterOptions(apiserver_flags=flags)) as own,
        proxied(own.kubeconfig) as (proxy, through),
        Client(through) as client,
        Client(auth.load(own.kubeconfig)) as direct,
        reflected(client, "default") as store,
    ):
        await direct.create(CONFIGMAPS, configmap("seen"), "default")
        await eventually(lambda: "seen" in store.objects)
        proxy.cut()
        await direct.create(CONFIGMAPS, configmap("missed"), "default")
        await direct.delete(CONFIGMAPS, "seen", "default")
        await _until_forgotten(direct, meta.resource_version(store.objects["seen"]))
        assert list(store.objects) == ["seen"]
        proxy.mend()
        await in_step(store, direct, "default")
        assert (store.lists, store.restarts) == (2, 0)


async def _until_forgotten(client: Client, version: str) -> None:
    """Keeps the store moving until it no longer knows what came after that version."""

    async def asking() -> None:
        while True:
            await client.patch(CONFIGMAPS, "missed", {"data": {"at": str(time.time())}}, "default")
            stream = client.watch(CONFIGMAPS, "default", resource_version=version, timeout_seconds=1)
            async with contextlib.aclosing(stream) as events:
                await anext(events)

    with pytest.raises(errors.Gone):
        await asyncio.wait_for(asking(), 60)


async def test_a_watch_that_is_cut_catches_up_without_a_list(
    cluster: DevCluster, client: Client, namespace: str
) -> None:
    async with (
        proxied(cluster.kubeconfig) as (proxy, through),
        Client(through) as other,
        reflected(other, namespace) as store,
    ):
        for number in range(3):
            await client.create(CONFIGMAPS, configmap(f"seen{number}"), namespace)
            await in_step(store, client, namespace)
            proxy.cut()
            await client.create(CONFIGMAPS, configmap(f"missed{number}"), namespace)
            proxy.mend()
            await in_step(store, client, namespace)
        assert store.lists == 1


async def test_a_watch_whose_other_end_is_gone_without_a_word_is_made_anew(
    cluster: DevCluster, client: Client, namespace: str
) -> None:
    settings = WatchSettings(silence_seconds=1.0)
    async with (
        proxied(cluster.kubeconfig) as (proxy, through),
        Client(through) as other,
        reflected(other, namespace, settings) as store,
    ):
        await client.create(CONFIGMAPS, configmap("seen"), namespace)
        await eventually(lambda: "seen" in store.objects)
        proxy.freeze()
        await client.create(CONFIGMAPS, configmap("missed"), namespace)
        proxy.mend()
        await in_step(store, client, namespace)


async def test_a_store_restored_from_a_backup_is_listed_again() -> None:
    """Versions go back with it; what was written after the backup never was."""
    async with (
        DevCluster() as own,
        Client(auth.load(own.kubeconfig)) as client,
        reflected(client, "default") as store,
    ):
        await client.create(CONFIGMAPS, configmap("old"), "default")
        saved = await own.save_etcd()
        for number in range(20):
            await client.create(CONFIGMAPS, configmap(f"later{number}"), "default")
        await client.delete(CONFIGMAPS, "old", "default")
        await eventually(lambda: len(store.objects) == 20 and "old" not in store.objects)
        await own.restore_etcd(saved)
        await eventually(lambda: list(store.objects) == ["old"])
        assert store.restarts == 1
        await client.create(CONFIGMAPS, configmap("new"), "default")
        await in_step(store, client, "default")
