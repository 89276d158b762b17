"""The examples of the documents, one directory per dialect, applied in the order of their names.

What an example takes for granted is made first: its namespace, and for an IPPool the Cluster it names. What
cannot be applied here is left out with a sentence, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from berth.errors import AlreadyExists, KubeError
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.settings import VIP_CLASS
from berth.up.tables import LISTS

Object = dict[str, Any]
SETTLE_SECONDS = 60.0  # for slow machines; it ends when all are answered
INSTALLED = Path(__file__).parents[1] / "examples"
CHECKOUT = Path(__file__).parents[3] / "examples"
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
OLD = ("GroupSegmentMapping", "VirtualIP")
INFRASTRUCTURE = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Cluster"}


def directory() -> Path:
    """Inside the installed package, or beside the sources of a checkout."""
    return INSTALLED if INSTALLED.is_dir() else CHECKOUT


def read(path: Path) -> Iterable[Object]:
    return (obj for obj in yaml.safe_load_all(path.read_text()) if isinstance(obj, dict) and "kind" in obj)


def objects(top: Path) -> list[Object]:
    """All examples as they are applied here, and before them the Clusters they name and do not bring."""
    found = [_claimed(obj, path.parent.name) for path in sorted(top.glob("*/*.yaml")) for obj in read(path)]
    brought = {_place(obj) for obj in found if obj["kind"] == "Cluster"}
    named = {(_place(obj)[0], _cluster_name(obj)) for obj in found if _cluster_name(obj)}
    return [*(_cluster(*place) for place in sorted(named - brought)), *found]


def sorted_out(found: Sequence[Object]) -> tuple[list[Object], list[Object]]:
    """What only an old cluster has, and the rest. Our webhooks refuse the first, so it is there before."""
    return [obj for obj in found if obj["kind"] in OLD], [obj for obj in found if obj["kind"] not in OLD]


def _claimed(obj: Object, dialect: str) -> Object:
    """One cluster serves all dialects here, so vip's Services have to say whose they are."""
    if dialect == "vip" and (obj.get("spec") or {}).get("type") == "LoadBalancer":
        obj["spec"].setdefault("loadBalancerClass", VIP_CLASS)
    return obj


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", "default"), obj["metadata"].get("name", "")


def _cluster_name(obj: Object) -> str:
    return str((obj.get("spec") or {}).get("clusterName") or "") if obj["kind"] == "IPPool" else ""


def _cluster(namespace: str, name: str) -> Object:
    """As little of a Cluster as a pool wants to see."""
    meta = {"name": name, "namespace": namespace}
    spec = {"paused": False, "infrastructureRef": {**INFRASTRUCTURE, "name": name}}
    return {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": meta, "spec": spec}


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
        namespace = _place(obj)[0] if resource.namespaced else ""
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
        rows = [row for listing in LISTS for row in await listing.rows(client)]
        if all(row.given for row in rows):
            return
        await asyncio.sleep(0.1)
