"""The examples of the documents, one directory per dialect, applied in the order of their names.

What an example takes for granted is made first: its namespace, and what its dialect says. What cannot be
applied here is left out with a sentence, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from berth.dialects import DIALECTS, named
from berth.dialects.examples import place
from berth.errors import AlreadyExists, KubeError
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]
SETTLE_SECONDS = 60.0  # for slow machines; it ends when all are answered
INSTALLED = Path(__file__).parents[1] / "examples"
CHECKOUT = Path(__file__).parents[3] / "examples"
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)


def directory() -> Path:
    """Inside the installed package, or beside the sources of a checkout."""
    return INSTALLED if INSTALLED.is_dir() else CHECKOUT


def read(path: Path) -> Iterable[Object]:
    return (obj for obj in yaml.safe_load_all(path.read_text()) if isinstance(obj, dict) and "kind" in obj)


def objects(top: Path) -> list[Object]:
    """All examples as they are applied here, and before them what they take for granted and do not bring."""
    found = [_applied(obj, path.parent.name) for path in sorted(top.glob("*/*.yaml")) for obj in read(path)]
    granted = [obj for dialect in DIALECTS for obj in dialect.examples.taken_for_granted(found)]
    return [*granted, *found]


def _applied(obj: Object, folder: str) -> Object:
    for dialect in named((folder,)):
        obj = dialect.examples.applied(obj)
    return obj


def told(api_url: str) -> tuple[object, ...]:
    """What the dialects are told here."""
    found = [dialect.examples.settings for dialect in DIALECTS]
    return tuple(settings(api_url) for settings in found if settings is not None)


def sorted_out(found: Sequence[Object]) -> tuple[list[Object], list[Object]]:
    """What only an old cluster has, and the rest. Our webhooks refuse the first, so it is there before."""
    old = {kind for dialect in DIALECTS for kind in dialect.examples.old_kinds}
    return [obj for obj in found if obj["kind"] in old], [obj for obj in found if obj["kind"] not in old]


@dataclass(slots=True)
class Applying:
    """One run over the examples. `left_out` has a sentence for each that could not be applied."""

    client: Client
    left_out: list[str] = field(default_factory=list)
    _kinds: dict[tuple[str, str], Resource | None] = field(default_factory=dict)

    async def all(self, found: Iterable[Object]) -> list[str]:
        for obj in found:
            await self._apply(obj)
        return self.left_out

    async def _apply(self, obj: Object) -> None:
        what = f"{obj['kind']} {obj['metadata'].get('name', '')}"
        resource = await self._resource(obj)
        if resource is None:
            self.left_out.append(f"{what}: the kind {obj['apiVersion']} {obj['kind']} is not installed here.")
            return
        namespace = place(obj)[0] if resource.namespaced else ""
        try:
            await self._create(resource, obj, namespace)
        except KubeError as error:
            self.left_out.append(f"{what}: {error}")

    async def _create(self, resource: Resource, obj: Object, namespace: str) -> None:
        if namespace:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            with suppress(AlreadyExists):
                await self.client.create(NAMESPACES, body)
        with suppress(AlreadyExists):
            await self.client.create(resource, obj, namespace)

    async def _resource(self, obj: Object) -> Resource | None:
        """What the server calls the kind; None where its CRD is not installed."""
        key = (obj["apiVersion"], obj["kind"])
        if key not in self._kinds:
            self._kinds[key] = await _discovered(self.client, *key)
        return self._kinds[key]


async def _discovered(client: Client, api_version: str, kind: str) -> Resource | None:
    group, _, version = api_version.rpartition("/")
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        listing = await client.raw("GET", prefix)
    except KubeError:
        return None
    for item in listing.get("resources", []):
        if item["kind"] == kind and "/" not in item["name"]:
            return Resource(group, version, kind, item["name"], item["namespaced"])
    return None


async def settled(client: Client) -> None:
    """Every claim has its answer, or a little time has passed."""
    for _ in range(int(SETTLE_SECONDS / 0.1)):
        tables = [table for dialect in DIALECTS for table in dialect.examples.tables]
        rows = [row for table in tables for row in await table.rows(client)]
        if all(row.given for row in rows):
            return
        await asyncio.sleep(0.1)
