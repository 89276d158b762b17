"""Caches of all that a dialect reads, each kept in step by its own watch; the barrier before work starts.

No decision is made before every cache is filled. A kind whose CRD is not installed is waited for when the
dialect cannot do without it, and counts as empty when it is optional (Cluster API beside Metal3); it is
looked for again until it appears, and again when the version in use is served no longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from berth import log
from berth.control.cache import Cache, IndexKeys, Object
from berth.errors import KubeError, NotFound
from berth.kube.client import Client
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
class Informer:
    """One kind in memory: the version in use (None while its CRD is missing) and its cache."""

    watched: WatchSpec
    cache: Cache
    resource: Resource | None = None
    known: asyncio.Event = field(default_factory=asyncio.Event)  # filled, or known to be missing

    @property
    def in_use(self) -> Resource:
        """What to write to; the first version while it is not known which one is served."""
        return self.resource or self.watched.versions[0]


class Informers:
    def __init__(self, client: Client, namespace: str = "", look_again_seconds: float = 5.0) -> None:
        self._client = client
        self._namespace = namespace
        self._look_again_seconds = look_again_seconds
        self._kept: dict[str, Informer] = {}

    def keep(self, watched: WatchSpec) -> Informer:
        """Ask for a kind; asking twice gives the same cache."""
        if watched.key not in self._kept:
            self._kept[watched.key] = Informer(watched, Cache(watched.indexes))
        return self._kept[watched.key]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as watches:
            for kept in self._kept.values():
                watches.create_task(self._follow(kept))

    async def filled(self) -> None:
        """Return when every cache has its first full list (or its kind is optional and missing)."""
        for kept in self._kept.values():
            await kept.known.wait()

    async def _follow(self, kept: Informer) -> None:
        while True:
            kept.resource = await self._find(kept)
            kept.cache.filled = False  # an optional kind that was missing counted as empty until now
            try:
                await self._reflect(kept, kept.resource)
            except NotFound:
                _log.warning("no longer served, looking for another version", resource=str(kept.resource))

    async def _reflect(self, kept: Informer, resource: Resource) -> None:
        namespace = (kept.watched.namespace or self._namespace) if resource.namespaced else ""
        await reflect(
            self._client,
            resource,
            _Filling(kept),
            namespace=namespace,
            label_selector=kept.watched.label_selector,
            written=lambda: kept.cache.written,
        )

    async def _find(self, kept: Informer) -> Resource:
        """The first version of the kind that is served; waits for the CRD as long as it takes."""
        said = False
        while True:
            try:
                if found := await first_served(self._client, kept.watched.versions):
                    return found
            except KubeError as error:
                _log.warning("cannot ask the API server what it serves", error=str(error))
            else:
                if kept.watched.optional:
                    kept.cache.filled = True
                    kept.known.set()
                elif not said:
                    _log.warning(
                        "waiting for a CRD; install it with: berth manifests crds | kubectl apply -f -",
                        crd=kept.watched.key,
                    )
                    said = True
            await asyncio.sleep(self._look_again_seconds)


class _Filling:
    """Passes everything on to the cache and rings the bell after the first list. That one counts alone: what
    the cache has from before is of another version of the kind, and looks otherwise.
    """

    def __init__(self, kept: Informer) -> None:
        self._cache = kept.cache
        self._known = kept.known
        self._first = True
        self.apply = kept.cache.apply

    def replace(self, items: list[Object], resource_version: str) -> None:
        if self._first:
            self.restart(items, resource_version)
        else:
            self._cache.replace(items, resource_version)

    def restart(self, items: list[Object], resource_version: str) -> None:
        self._cache.restart(items, resource_version)
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
