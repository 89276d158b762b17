"""A scripted API server for tests on fake time: objects in memory, compare and swap, faults on demand.

It knows just what `control.api.Api` needs. Tests marked `cluster` run the same parts on the real one.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from berth.errors import AlreadyExists, Conflict, NotFound, Unreachable
from berth.kube.resource import Resource

Object = dict[str, Any]
Key = tuple[str, str, str]


class FakeApi:
    """One server; give each client under test its own `link()` to cut them off one by one."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.revision = 0
        self.writes: list[tuple[str, Object]] = []

    def link(self, before: Callable[[], None] = lambda: None) -> Link:
        return Link(self, before)

    def stored(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return copy.deepcopy(self._find((resource.plural, namespace, name)))

    def put(self, verb: str, resource: Resource, obj: Object) -> Object:
        self.revision += 1
        stored = copy.deepcopy(obj)
        stored["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[_key(resource, stored)] = stored
        self.writes.append((verb, stored))
        return copy.deepcopy(stored)

    def swap(self, resource: Resource, obj: Object) -> Object:
        held = self._find(_key(resource, obj))
        expected = obj["metadata"].get("resourceVersion")
        if expected and expected != held["metadata"]["resourceVersion"]:
            raise Conflict(409, "the object has been modified", status_reason="Conflict")
        return self.put("replace", resource, obj)

    def add(self, resource: Resource, obj: Object) -> Object:
        if _key(resource, obj) in self.objects:
            raise AlreadyExists(409, "already exists", status_reason="AlreadyExists")
        return self.put("create", resource, obj)

    def _find(self, key: Key) -> Object:
        if key not in self.objects:
            raise NotFound(404, f"{key} not found", status_reason="NotFound")
        return self.objects[key]


class Link:
    """One client's way to the server. `down`: no answer. `hangs`: none ever. `deaf`: done, but no answer."""

    def __init__(self, server: FakeApi, before: Callable[[], None]) -> None:
        self.server = server
        self.down = False
        self.hangs = False
        self.deaf = False
        self.refuses: Exception | None = None
        self._before = before

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        await self._travel()
        return self.server.stored(resource, name, namespace)

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        await self._travel(write=True)
        return self._answer(self.server.add(resource, obj))

    async def replace(self, resource: Resource, obj: Object) -> Object:
        await self._travel(write=True)
        return self._answer(self.server.swap(resource, obj))

    async def patch(self, resource: Resource, name: str, body: Object, namespace: str = "") -> Object:
        await self._travel(write=True)
        held = self.server.stored(resource, name, namespace)
        return self._answer(self.server.put("patch", resource, _merged(held, body)))

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str = "", resource_version: str = ""
    ) -> Object | None:
        await self._travel(write=True)
        held = self.server.stored(resource, name, namespace)
        if resource_version and held["metadata"]["resourceVersion"] != resource_version:
            raise Conflict(409, "the precondition failed", status_reason="Conflict")
        del self.server.objects[_key(resource, held)]
        self.server.writes.append(("delete", held))
        return None

    async def _travel(self, write: bool = False) -> None:
        if write:
            self._before()
        await asyncio.sleep(0.001)
        if self.hangs:
            await asyncio.Event().wait()
        if self.down:
            raise Unreachable("connection refused")
        if write and self.refuses is not None:
            raise self.refuses

    def _answer(self, obj: Object) -> Object:
        if self.deaf:
            raise Unreachable("the connection was cut before the answer")
        return obj


def _key(resource: Resource, obj: Object) -> Key:
    meta = obj["metadata"]
    return resource.plural, meta.get("namespace", ""), meta["name"]


def _merged(held: Object, body: Object) -> Object:
    result = dict(held)
    for key, value in body.items():
        inner = result.get(key)
        result[key] = _merged(inner, value) if isinstance(value, dict) and isinstance(inner, dict) else value
    return result
