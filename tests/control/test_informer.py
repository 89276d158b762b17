"""What we write and read ourselves shows in the cache at once, before any watch has told it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.kube.scripted import CONFIGMAPS
from tests.support.cluster import make_namespace
from tests.support.operator import admin

from berth.control.cache import Cache
from berth.control.informers import Informer, WatchSpec
from berth.devcluster import DevCluster
from berth.errors import Conflict, NotFound
from berth.kube import meta
from berth.kube.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
OURS = "berth.test/ours"
Object = dict[str, Any]


class Desk:
    """An informer without a watch: its cache knows what its verbs told it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.informer = Informer(WatchSpec((CONFIGMAPS,)), Cache(), client)

    @property
    def seen(self) -> Object | None:
        return self.informer.cache.get(self.namespace, "a")

    async def made(self, *finalizers: str) -> Object:
        about = {"name": "a", "namespace": self.namespace, "finalizers": list(finalizers)}
        return await self.informer.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about})

    async def gone_behind_our_back(self) -> None:
        await self.client.delete(CONFIGMAPS, "a", self.namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def desk(cluster: DevCluster) -> AsyncIterator[Desk]:
    async with admin(cluster) as client:
        yield Desk(client, await make_namespace(cluster))


async def test_what_was_created_and_patched_is_seen_at_once(desk: Desk) -> None:
    made = await desk.made()
    assert desk.seen == made
    written = await desk.informer.patch(made, {"data": {"a": "1"}})
    assert written["data"] == {"a": "1"}
    assert desk.seen == written


async def test_a_patch_of_what_is_gone_says_so_and_the_cache_knows(desk: Desk) -> None:
    made = await desk.made()
    await desk.gone_behind_our_back()
    with pytest.raises(NotFound):
        await desk.informer.patch(made, {"data": {"a": "1"}})
    assert desk.seen is None


async def test_a_live_read_shows_what_others_wrote_and_that_it_is_gone(desk: Desk) -> None:
    await desk.made()
    theirs = await desk.client.patch(CONFIGMAPS, "a", {"data": {"a": "2"}}, desk.namespace)
    found = await desk.informer.fetch(desk.namespace, "a")
    assert found is not None
    assert desk.seen == found
    assert meta.resource_version(found) == meta.resource_version(theirs)
    await desk.gone_behind_our_back()
    assert await desk.informer.fetch(desk.namespace, "a") is None
    assert desk.seen is None


async def test_only_the_very_object_we_looked_at_is_deleted(desk: Desk) -> None:
    made = await desk.made()
    await desk.client.patch(CONFIGMAPS, "a", {"data": {"a": "2"}}, desk.namespace)
    with pytest.raises(Conflict):
        await desk.informer.delete(made)
    assert desk.seen == made
    assert await desk.informer.delete(made, if_unchanged=False) is None
    assert desk.seen is None
    assert await desk.informer.delete(made) is None  # gone already is fine


async def test_what_a_finalizer_holds_is_seen_as_going_until_that_is_taken_away(desk: Desk) -> None:
    left = await desk.informer.delete(await desk.made(OURS))
    assert left is not None
    assert desk.seen == left
    assert meta.is_deleting(left)
    assert await desk.informer.remove_finalizer(left, OURS) is None
    assert desk.seen is None


async def test_another_client_writes_for_the_same_cache_and_version(desk: Desk) -> None:
    other = desk.informer.through(desk.client)
    desk.informer.resource = CONFIGMAPS
    assert other.resource is CONFIGMAPS
    await other.create({"metadata": {"name": "a", "namespace": desk.namespace}})
    assert desk.seen is not None
