"""A finalizer goes by one write, and nothing goes with it but the object it was on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.kube.scripted import CONFIGMAPS
from tests.support.cluster import make_namespace
from tests.support.operator import admin

from berth.control.cache import Cache
from berth.control.finalizers import remove_finalizer
from berth.devcluster import DevCluster
from berth.errors import AlreadyExists, Conflict, NotFound
from berth.kube import meta
from berth.kube.client import Client

pytestmark = pytest.mark.cluster

OURS, THEIRS = "berth.test/ours", "berth.test/theirs"
ROUNDS = 40
AT_ONCE = 8
Object = dict[str, Any]


def held(namespace: str, *finalizers: str) -> Object:
    about = {"name": "a", "namespace": namespace, "finalizers": list(finalizers)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"kept": "1"}}


async def release(client: Client, obj: Object, cache: Cache | None = None) -> Object | None:
    return await remove_finalizer(client, CONFIGMAPS, cache or Cache(), obj, OURS)


async def test_an_object_that_is_not_going_stays_and_keeps_the_rest(cluster: DevCluster) -> None:
    namespace = await make_namespace(cluster)
    async with admin(cluster) as client:
        made = await client.create(CONFIGMAPS, held(namespace, THEIRS, OURS))
        left = await release(client, made)
        assert left is not None
        assert meta.finalizers(left) == [THEIRS]
        assert left["data"] == {"kept": "1"}
        assert await release(client, left) is left  # nothing to write
        with pytest.raises(Conflict):
            await release(client, made)  # it is another version by now


async def test_who_is_going_stays_while_others_hold_it_and_goes_with_the_last(cluster: DevCluster) -> None:
    namespace, cache = await make_namespace(cluster), Cache()
    async with admin(cluster) as client:
        made = await client.create(CONFIGMAPS, held(namespace, THEIRS, OURS))
        cache.replace([made], meta.resource_version(made))
        going = await client.delete(CONFIGMAPS, "a", namespace)
        assert going is not None
        with pytest.raises(Conflict):
            await release(client, {**going, "metadata": {**going["metadata"], "resourceVersion": "1"}})
        left = await release(client, going, cache)
        assert left is not None
        assert meta.finalizers(left) == [THEIRS]
        assert cache.get(namespace, "a") == left
        assert await remove_finalizer(client, CONFIGMAPS, cache, left, THEIRS) is None
        assert cache.get(namespace, "a") is None
        with pytest.raises(NotFound):
            await client.get(CONFIGMAPS, "a", namespace)
        assert await release(client, {**going, "metadata": {**made["metadata"]}}) is None  # gone: no error


async def test_the_next_of_the_name_survives_however_many_let_go_of_the_last(cluster: DevCluster) -> None:
    """Two operators without election let go of one object while a user makes it anew. A PATCH that empties
    the finalizers lets the API server delete by name alone."""
    namespace = await make_namespace(cluster)
    async with admin(cluster) as client:
        for _ in range(ROUNDS):
            await client.create(CONFIGMAPS, held(namespace, OURS))
            going = await client.delete(CONFIGMAPS, "a", namespace)
            assert going is not None
            async with asyncio.TaskGroup() as group:
                again = group.create_task(make_again(client, held(namespace)))
                for _ in range(AT_ONCE):
                    group.create_task(one_lets_go(client, going))
            found = await client.get(CONFIGMAPS, "a", namespace)
            assert meta.uid(found) == meta.uid(again.result())
            await client.delete(CONFIGMAPS, "a", namespace)


async def one_lets_go(client: Client, going: Object) -> None:
    with suppress(Conflict):  # the next of the name is there already
        assert await release(client, going) is None


async def make_again(client: Client, obj: Object) -> Object:
    for _ in range(1000):
        try:
            return await client.create(CONFIGMAPS, obj)
        except AlreadyExists:
            await asyncio.sleep(0)
    raise AssertionError("the name never came free")
