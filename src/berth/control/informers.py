"""Caches of all that a dialect reads, each kept in step by its own watch; the barrier before work starts.

What is written through an informer shows in its cache at once, so that nobody decides on what we have changed
ourselves. No decision is made before every cache is filled. A kind whose CRD is not installed is waited for
when the dialect cannot do without it, and counts as empty when it is optional (Cluster API beside Metal3); it
is looked for again until it appears, and again when the version in use is served no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from berth import log
from berth.control.cache import Cache, IndexKeys, Object, key_of
from berth.control.finalizers import remove_finalizer
from berth.errors import KubeError, NotFound
from berth.kube import meta
from berth.kube.client import Client, PatchKind
from berth.kube.resource import Resource
from berth.kube.watch import reflect

_log = log.get("berth.informers")


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """A kind to keep in memory. Several versions: the first one that the server serves is used."""

    versions: tuple[Resource, ...]
    indexes: Mapping[str, IndexKeys] = field(default_factory=dict)
    optional: bool = False
    label_selector: str = ""
    namespace: str = ""  # only there, whatever the operator's own is

    @property
    def key(self) -> str:
        return self.versions[0].key


@dataclass(slots=True)
class Served:
    """The version of a kind in use (None while its CRD is missing); filled, or known to be missing."""

    resource: Resource | None = None
    known: asyncio.Event = field(default_factory=asyncio.Event)


class Informer:
    """One kind in memory, and its objects on the server: what a verb here learns, the cache knows too."""

    def __init__(
        self, watched: WatchSpec, cache: Cache, client: Client, served: Served | None = None
    ) -> None:
        self.watched = watched
        self.cache = cache
        self._client = client
        self._served = served or Served()

    def through(self, client: Client) -> Informer:
        """The same kind and cache for another client: webhooks write on every replica, leading or not."""
        return Informer(self.watched, self.cache, client, self._served)

    @property
    def resource(self) -> Resource | None:
        """The version in use; None while its CRD is missing."""
        return self._served.resource

    @resource.setter
    def resource(self, resource: Resource | None) -> None:
        self._served.resource = resource

    @property
    def known(self) -> asyncio.Event:
        """Filled, or known to be missing."""
        return self._served.known

    @property
    def in_use(self) -> Resource:
        """What to write to; the first version while it is not known which one is served."""
        return self.resource or self.watched.versions[0]

    async def fetch(self, namespace: str, name: str) -> Object | None:
        """A live read; None if there is no such object."""
        known = self.cache.get(namespace, name)
        try:
            found = await self._client.get(self.in_use, name, namespace)
        except NotFound:
            if known is not None:
                self.cache.forget_deleted(known)
            return None
        self.cache.put(found)
        return found

    async def create(self, body: Object, namespace: str = "") -> Object:
        created = await self._client.create(self.in_use, body, namespace)
        self.cache.put(created)
        return created

    async def patch(
        self,
        obj: Object,
        body: Mapping[str, Any] | list[Any],
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        field_manager: str = "",
    ) -> Object:
        """Raises NotFound if the object is gone."""
        namespace, name = key_of(obj)
        try:
            written = await self._client.patch(
                self.in_use,
                name,
                body,
                namespace,
                kind=kind,
                subresource=subresource,
                field_manager=field_manager,
            )
        except NotFound:
            self.cache.forget_deleted(obj)
            raise
        self.cache.put(written)
        return written

    async def delete(self, obj: Object, *, if_unchanged: bool = True) -> Object | None:
        """Asks for deletion of this very object: what is left of it while finalizers hold it, None if it is
        gone. Raises Conflict if another has its name, or it changed since we looked."""
        namespace, name = key_of(obj)
        version = meta.resource_version(obj) if if_unchanged else ""
        try:
            left = await self._client.delete(
                self.in_use, name, namespace, uid=meta.uid(obj), resource_version=version
            )
        except NotFound:
            left = None
        if left is None:
            self.cache.forget_deleted(obj)
        else:
            self.cache.put(left)
        return left

    async def remove_finalizer(self, obj: Object, finalizer: str) -> Object | None:
        """The object without it, None if it is gone. Raises Conflict if it changed since we looked."""
        return await remove_finalizer(self._client, self.in_use, self.cache, obj, finalizer)


class Informers:
    def __init__(self, client: Client, namespace: str = "", look_again_seconds: float = 5.0) -> None:
        self._client = client
        self._namespace = namespace
        self._look_again_seconds = look_again_seconds
        self._informers: dict[str, Informer] = {}

    def watch(self, watched: WatchSpec) -> Informer:
        """Ask for a kind; asking twice gives the same cache."""
        if watched.key not in self._informers:
            self._informers[watched.key] = Informer(watched, Cache(watched.indexes), self._client)
        return self._informers[watched.key]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as watches:
            for informer in self._informers.values():
                watches.create_task(self._follow(informer))

    async def filled(self) -> None:
        """Return when every cache has its first full list (or its kind is optional and missing)."""
        for informer in self._informers.values():
            await informer.known.wait()

    async def _follow(self, informer: Informer) -> None:
        while True:
            informer.resource = await self._find(informer)
            informer.cache.filled = False  # an optional kind that was missing counted as empty until now
            try:
                await self._reflect(informer, informer.resource)
            except NotFound:
                _log.warning("no longer served, looking for another version", resource=str(informer.resource))

    async def _reflect(self, informer: Informer, resource: Resource) -> None:
        namespace = (informer.watched.namespace or self._namespace) if resource.namespaced else ""
        await reflect(
            self._client,
            resource,
            _Filling(informer),
            namespace=namespace,
            label_selector=informer.watched.label_selector,
            written=lambda: informer.cache.written,
        )

    async def _find(self, informer: Informer) -> Resource:
        """The first version of the kind that is served; waits for the CRD as long as it takes."""
        said = False
        while True:
            try:
                if found := await first_served(self._client, informer.watched.versions):
                    return found
            except KubeError as error:
                _log.warning("cannot ask the API server what it serves", error=str(error))
            else:
                if informer.watched.optional:
                    informer.cache.filled = True
                    informer.known.set()
                elif not said:
                    _log.warning(
                        "waiting for a CRD; install it with: berth manifests crds | kubectl apply -f -",
                        crd=informer.watched.key,
                    )
                    said = True
            await asyncio.sleep(self._look_again_seconds)


class _Filling:
    """Passes everything on to the cache and rings the bell after the first list. That one counts alone: what
    the cache has from before is of another version of the kind, and looks otherwise.
    """

    def __init__(self, informer: Informer) -> None:
        self._cache = informer.cache
        self._known = informer.known
        self._first = True
        self.apply = informer.cache.apply

    def replace(self, items: list[Object], resource_version: str) -> None:
        if self._first:
            self.reset(items, resource_version)
        else:
            self._cache.replace(items, resource_version)

    def reset(self, items: list[Object], resource_version: str) -> None:
        self._cache.reset(items, resource_version)
        self._first = False
        self._known.set()


async def first_served(client: Client, versions: Sequence[Resource]) -> Resource | None:
    for resource in versions:
        prefix = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
        try:
            listing = await client.raw("GET", prefix)
        except NotFound:
            continue
        if any(item["name"] == resource.plural for item in listing.get("resources", [])):
            return resource
    return None
