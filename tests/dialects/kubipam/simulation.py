"""Whole operators on a scripted API server and fake time: what seconds of a real cluster show once, in
milliseconds and in every order.

    server ── every write checked for I1 and I3 ── history ──► each operator's caches, late and apart
       ▲                                                          │
       └── link: slow, cut before or after the effect ◄── controllers, ledger, audit: the real ones

Operators die at any await. Tests marked `cluster` run the same parts on the real server.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support import virtual

from berth.control.cache import Cache
from berth.control.controller import Controller
from berth.control.events import Recorder
from berth.control.informers import Informer, WatchSpec
from berth.dialects.dialect import Dependencies
from berth.dialects.kubipam import reconcile
from berth.dialects.kubipam.kinds import RANGE, REQUEST
from berth.dialects.kubipam.orphans import AuditSettings
from berth.dialects.kubipam.translate import block_of, range_of
from berth.errors import Conflict, NotFound, Unreachable
from berth.kube import meta
from berth.kube.client import Client, Listing, PatchKind
from berth.kube.resource import Resource
from berth.metrics import Metrics
from berth.settings import Settings

Object = dict[str, Any]
Key = tuple[str, str, str]
NAMESPACE = "n"


def on_fake_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that asks what time it is asks the loop."""
    controller = partial(Controller, clock=virtual.now)
    monkeypatch.setattr("berth.dialects.kubipam.reconcile.Controller", controller)
    monkeypatch.setattr("berth.dialects.kubipam.leases.time", SimpleNamespace(monotonic=virtual.now))


class Server:
    """The two kinds: versions, guards, finalizers, watches. A write that breaks I1 or I3 is remembered."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.revision = 100
        self.born = 0
        self.events: list[tuple[str, str, str]] = []  # type, reason, message
        self.watches: list[tuple[str, deque[tuple[str, Object]], asyncio.Event]] = []
        self.shown: dict[str, str] = {}  # what each request was first answered, by its UID
        self.broken: list[str] = []
        self.era = 0  # grows when a backup is restored: whatever was under way is cut

    # What people do

    def create(self, resource: Resource, name: str, spec: Object, namespace: str = NAMESPACE) -> Object:
        self.born += 1
        about = {"name": name, "namespace": namespace, "uid": f"uid-{self.born}"}
        about["creationTimestamp"] = f"{self.born:06}"
        obj: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about}
        return self._put("ADDED", resource, {**obj, "spec": spec})

    def ask(self, name: str, range: str = "p", **spec: Any) -> Object:
        return self.create(REQUEST, name, {"ipam": {"name": range}, **spec})

    def delete(self, resource: Resource, name: str, namespace: str = NAMESPACE) -> None:
        obj = self.find(resource, name, namespace)
        if obj["metadata"].get("finalizers") and not meta.is_deleting(obj):
            obj["metadata"]["deletionTimestamp"] = "now"
            self._put("MODIFIED", resource, obj)
        elif not obj["metadata"].get("finalizers"):
            self._remove(resource, obj)

    def slip(self, name: str) -> None:
        """A delete that met no finalizer when it was decided, and one when it was done."""
        self._remove(REQUEST, self.find(REQUEST, name))

    def edit(self, resource: Resource, name: str, **fields: Any) -> Object:
        return self.patch(resource, name, fields, NAMESPACE)

    def restore(self, objects: dict[Key, Object], revision: int) -> None:
        """A backup: every object and the revision as they were; what was answered since is not known. No
        watch hears of it or of anything it had not told yet, and whoever waits for an answer gets none."""
        self.era += 1
        for _, watch, _ in self.watches:
            watch.clear()
        self.watches.clear()
        self.objects, self.revision = copy.deepcopy(objects), revision
        self.shown = {meta.uid(one): cidr_of(one) for one in self.all(REQUEST) if cidr_of(one)}

    # What it answers

    def find(self, resource: Resource, name: str, namespace: str = NAMESPACE) -> Object:
        found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise NotFound(404, f"{name} not found", status_reason="NotFound")
        return copy.deepcopy(found)

    def all(self, resource: Resource) -> list[Object]:
        return [copy.deepcopy(obj) for key, obj in self.objects.items() if key[0] == resource.plural]

    def patch(self, resource: Resource, name: str, body: Any, namespace: str) -> Object:
        held = self.find(resource, name, namespace)
        obj = _stepped(held, body) if isinstance(body, list) else _merged(held, body)
        guard = {} if isinstance(body, list) else body.get("metadata", {})
        for field in ("uid", "resourceVersion"):
            if guard.get(field, held["metadata"][field]) != held["metadata"][field]:
                raise Conflict(409, "the object has been modified", status_reason="Conflict")
        if obj == held:
            return held
        if meta.is_deleting(obj) and not obj["metadata"].get("finalizers"):
            return self._remove(resource, obj)
        return self._put("MODIFIED", resource, obj)

    def replace(self, resource: Resource, obj: Object) -> Object:
        """Only finalizers are ever changed so: the status has a way of its own."""
        about = obj["metadata"]
        held = self.find(resource, about["name"], about["namespace"])
        if any(about[field] != held["metadata"][field] for field in ("uid", "resourceVersion")):
            raise Conflict(409, "the object has been modified", status_reason="Conflict")
        held["metadata"]["finalizers"] = list(meta.finalizers(obj))
        if meta.is_deleting(held) and not held["metadata"]["finalizers"]:
            return self._remove(resource, held)
        return self._put("MODIFIED", resource, held)

    def _put(self, type: str, resource: Resource, obj: Object) -> Object:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        self.objects[_key(resource, obj)] = obj
        if resource is REQUEST:
            self._check(obj)
        self._tell(type, resource, obj)
        return copy.deepcopy(obj)

    def _remove(self, resource: Resource, obj: Object) -> Object:
        self.revision += 1
        del self.objects[_key(resource, obj)]
        obj["metadata"]["resourceVersion"] = str(self.revision)
        self._tell("DELETED", resource, obj)
        return copy.deepcopy(obj)

    def _tell(self, type: str, resource: Resource, obj: Object) -> None:
        for plural, watch, news in self.watches:
            if plural == resource.plural:
                watch.append((type, copy.deepcopy(obj)))
                news.set()

    # What must always be true

    def _check(self, obj: Object) -> None:
        """I3: an answer stays. I1: no two who may use their block have one in common."""
        block, uid = block_of(obj), meta.uid(obj)
        before = self.shown.get(uid)
        if before not in (None, cidr_of(obj)):
            self.broken.append(f"I3: {uid} had {before} and now has {block}")
        if block is None or before is not None:
            return
        self.shown[uid] = cidr_of(obj)
        for other in [one for key, one in self.objects.items() if key[0] == REQUEST.plural]:
            held = block_of(other)
            if held is None or meta.uid(other) == uid or range_of(other) != range_of(obj):
                continue
            if held.overlaps(block) and not self._has_released(other):
                self.broken.append(f"I1: {uid} has {block} and {meta.uid(other)} has {held}")

    def _has_released(self, request: Object) -> bool:
        """It still shows its block, and only its finalizer is left."""
        namespace, name = range_of(request).split("/", 1)
        held = self.objects.get((RANGE.plural, namespace, name)) or {}
        return meta.uid(request) in ((held.get("status") or {}).get("released") or ())


class Link:
    """One operator's way to the server: as slow as it likes, and cut before or after the effect."""

    def __init__(self, server: Server, random: Random, loss: float = 0.0) -> None:
        self._server = server
        self._random = random
        self.loss = loss
        self.before: Callable[[Resource, Any], None] = lambda resource, body: None  # a word before each write

    async def _travel(self) -> None:
        era = self._server.era
        await asyncio.sleep(self._random.uniform(0.0, 0.03))
        if self._random.random() < self.loss or era != self._server.era:
            raise Unreachable("cut")

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        await self._travel()
        found = self._server.find(resource, name, namespace)
        await self._travel()
        return found

    async def list(self, resource: Resource, namespace: str = "") -> Listing:
        await self._travel()
        found = [one for one in self._server.all(resource) if namespace in ("", one["metadata"]["namespace"])]
        listing = Listing(found, str(self._server.revision))
        await self._travel()
        return listing

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        namespace: str = "",
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
    ) -> Object:
        await self._travel()
        self.before(resource, body)
        answer = self._server.patch(resource, name, body, namespace)
        await self._travel()
        return answer

    async def replace(self, resource: Resource, obj: Object) -> Object:
        await self._travel()
        self.before(resource, obj)
        answer = self._server.replace(resource, obj)
        await self._travel()
        return answer

    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        """Only Events are created."""
        self._server.events.append((obj["type"], obj["reason"], obj["message"]))
        return obj


class Simulated:
    """One operator: the real wiring on its own caches. `stop` is a kill: whatever was under way is cut."""

    def __init__(self, server: Server, random: Random, *, loss: float = 0.0, namespace: str = "") -> None:
        self._server = server
        self._random = random
        self._namespace = namespace
        self.link = Link(server, random, loss)
        self.caches: dict[str, Cache] = {}
        self._watches: dict[str, deque[tuple[str, Object]]] = {}
        self._news: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.lag = 0.2

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run())]

    async def _run(self) -> None:
        metrics = Metrics()
        link: Any = self.link
        events = Recorder(link, metrics)
        settings = Settings(namespace=self._namespace)
        clock = AuditSettings(clock=virtual.now)
        built = reconcile.build(Dependencies(link, self._keep, events, metrics, settings, link), clock)
        for resource in (RANGE, REQUEST):
            self.caches[resource.key].replace(self._visible(resource), str(self._server.revision))
            self._subscribe(resource)
        built.adopt()
        async with asyncio.TaskGroup() as group:
            for resource in (RANGE, REQUEST):
                group.create_task(self._follow(resource))
            for controller in built.controllers:
                group.create_task(controller.run())
            for task in built.tasks:
                group.create_task(task())

    def _keep(self, watched: WatchSpec) -> Informer:
        cache = self.caches[watched.key] = Cache(watched.indexes)
        return Informer(watched, cache, cast(Client, self.link))

    def _subscribe(self, resource: Resource) -> None:
        watch = self._watches[resource.key] = deque()
        news = self._news.setdefault(resource.key, asyncio.Event())
        self._server.watches.append((resource.plural, watch, news))

    def _visible(self, resource: Resource) -> list[Object]:
        return [one for one in self._server.all(resource) if self._sees(one)]

    def _sees(self, obj: Object) -> bool:
        return self._namespace in ("", obj["metadata"]["namespace"])

    async def _follow(self, resource: Resource) -> None:
        while True:
            await self._news[resource.key].wait()
            self._news[resource.key].clear()
            await asyncio.sleep(self._random.uniform(0.0, self.lag))
            watch = self._watches[resource.key]
            while watch:
                type, obj = watch.popleft()
                if self._sees(obj):
                    self.caches[resource.key].apply(type, obj)

    def relist(self, *resources: Resource) -> None:
        """Every watch was cut when the backup was restored; this one begins anew."""
        for resource in resources:
            self.caches[resource.key].reset(self._visible(resource), str(self._server.revision))
            self._subscribe(resource)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if result is not None and not isinstance(result, asyncio.CancelledError):
                raise result


@asynccontextmanager
async def operators(
    server: Server, random: Random, count: int = 1, **settings: Any
) -> AsyncIterator[list[Simulated]]:
    found = [Simulated(server, random, **settings) for _ in range(count)]
    for one in found:
        one.start()
    try:
        yield found
    finally:
        for one in found:
            await one.stop()
    assert server.broken == []


def cidr_of(obj: Object) -> str:
    return str((obj.get("status") or {}).get("cidr") or "")


def _key(resource: Resource, obj: Object) -> Key:
    return resource.plural, obj["metadata"]["namespace"], obj["metadata"]["name"]


def _merged(held: Object, body: Object) -> Object:
    result = dict(held)
    for key, value in body.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merged(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


def _stepped(held: Object, steps: Iterable[Object]) -> Object:
    """The few JSON patch steps that finalizers and pages need."""
    obj = copy.deepcopy(held)
    for step in steps:
        *way, last = (word.replace("~1", "/") for word in step["path"].strip("/").split("/"))
        place: Any = obj
        for word in way:
            place = place.get(word) or {}
        if step["op"] == "test" and _at(place, last) != step["value"]:
            raise Conflict(409, "a test of the patch failed", status_reason="Conflict")
        if step["op"] == "add" and last == "-":
            place.append(step["value"])
        elif step["op"] == "add":
            place[last] = step["value"]
        elif step["op"] == "remove":
            place.pop(int(last) if isinstance(place, list) else last)
    for field in ("finalizers", "annotations"):
        if not obj["metadata"].get(field):
            obj["metadata"].pop(field, None)  # an empty one is not stored
    return obj


def _at(place: Any, word: str) -> Any:
    if isinstance(place, list):
        return place[int(word)] if int(word) < len(place) else None
    return place.get(word)
