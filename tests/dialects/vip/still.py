"""An operator whose watches stand still: it sees what the test lets it see, and passes when it is told to."""

from __future__ import annotations

from typing import Any, cast

from tests.support.vip import World

from berth.control.cache import Cache
from berth.control.events import Recorder
from berth.control.informers import Informer, Served, WatchSpec
from berth.dialects.dialect import Dependencies
from berth.dialects.vip.reconcile import build
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.kube.resource import Resource
from berth.metrics import Metrics
from berth.settings import Settings


class Still:
    def __init__(self, world: World, client: Client | None = None) -> None:
        self._world = world
        self._kept: dict[str, Informer] = {}
        self._client = reached = client or world.client
        kit = Dependencies(reached, self._keep, cast(Recorder, Silent()), Metrics(), Settings(), reached)
        self._built = build(kit)

    def _keep(self, watched: WatchSpec) -> Informer:
        kept = Informer(watched, Cache(watched.indexes), self._client, Served(watched.versions[0]))
        return self._kept.setdefault(watched.key, kept)

    def cache(self, resource: Resource) -> Cache:
        return self._kept[resource.key].cache

    async def start(self) -> None:
        await self.look(*(kept.watched.versions[0] for kept in self._kept.values()))
        self._built.adopt()

    async def look(self, *resources: Resource) -> None:
        """What its watches of these kinds would have told by now."""
        for resource in resources:
            listing = await self._world.client.list(resource)
            self.cache(resource).replace(listing.items, listing.resource_version)

    async def work(self, kind: str, name: str) -> None:
        """One pass; what it raises is the test's to expect."""
        controllers = {one.name: one for one in self._built.controllers}
        await controllers[f"vip.{kind.lower()}"]._reconcile(Ref(kind, self._world.namespace, name))


class Silent:
    def event(self, *about: Any) -> None: ...
