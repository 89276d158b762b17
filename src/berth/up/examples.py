"""The examples of the documents, per dialect, as YAML in `examples/`, applied in the order of their names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from berth.errors import AlreadyExists, KubeError
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.up.tables import LISTS

Object = dict[str, Any]
SETTLE_SECONDS = 15.0
INSTALLED = Path(__file__).parents[1] / "examples"
CHECKOUT = Path(__file__).parents[3] / "examples"


def directory() -> Path:
    """Inside the installed package, or beside the sources of a checkout."""
    return INSTALLED if INSTALLED.is_dir() else CHECKOUT


def read(path: Path) -> Iterable[Object]:
    return (obj for obj in yaml.safe_load_all(path.read_text()) if obj)


async def apply_all(client: Client) -> None:
    for path in sorted(directory().glob("*/*.yaml")):
        for obj in read(path):
            if isinstance(obj, dict) and "kind" in obj:
                await _create(client, obj)


async def _create(client: Client, obj: Object) -> None:
    resource = await _resource(client, obj)
    if resource is None:
        return
    namespace = obj["metadata"].get("namespace", "default") if resource.namespaced else ""
    try:
        await client.create(resource, obj, namespace)
    except AlreadyExists:
        return
    except KubeError as error:
        name = f"{obj['kind']} {obj['metadata'].get('name')}"
        raise KubeError(f"the example {name} was refused: {error}") from error


async def _resource(client: Client, obj: Object) -> Resource | None:
    """What the server calls the kind; None where its CRD is not installed."""
    group, _, version = obj["apiVersion"].rpartition("/")
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        listing = await client.raw("GET", prefix)
    except KubeError:
        return None
    for item in listing.get("resources", []):
        if item["kind"] == obj["kind"] and "/" not in item["name"]:
            return Resource(group, version, obj["kind"], item["name"], item["namespaced"])
    return None


async def settled(client: Client) -> None:
    """Every claim has its answer, or a little time has passed."""
    for _ in range(int(SETTLE_SECONDS / 0.1)):
        rows = [row for listing in LISTS for row in await listing.rows(client)]
        if rows and all(row.given for row in rows):
            return
        await asyncio.sleep(0.1)
