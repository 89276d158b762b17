"""A backup of objects as people make one: files from `kubectl get -o yaml`, brought back by `kubectl create`.

A create drops the status and gives another UID; the one field it refuses is the resource version.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import yaml
from tests.support.cluster import Kubectl, KubectlFailed

from berth.errors import NotFound
from berth.kube.client import Client, PatchKind
from berth.kube.resource import Resource

Object = dict[str, Any]


async def export(kubectl: Kubectl, resources: Iterable[Resource], namespace: str) -> list[Object]:
    """What `kubectl get -o yaml` says of these kinds."""
    found: list[Object] = []
    for resource in resources:
        scope = ("-n", namespace) if resource.namespaced else ()
        kind = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        found += yaml.safe_load(await kubectl("get", kind, *scope, "-o", "yaml"))["items"]
    return found


async def restore(kubectl: Kubectl, objects: Iterable[Object], *options: str) -> None:
    """In this order. What an operator has made again by itself meanwhile is left as it is."""
    documents = [_bare(obj) for obj in objects]
    if not documents:
        return
    try:
        await kubectl("create", "-f", "-", *options, stdin=yaml.safe_dump_all(documents))
    except KubectlFailed as failed:
        told = [line for line in str(failed).splitlines() if "Error from server" in line]
        if not told or not all("(AlreadyExists)" in line for line in told):
            raise


def _bare(obj: Object) -> Object:
    about = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": about}


async def wipe(client: Client, resources: Iterable[Resource], namespace: str) -> None:
    """The disaster: no operator saw anything go."""
    for resource in resources:
        for obj in (await client.list(resource, namespace if resource.namespaced else "")).items:
            name, inside = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
            with suppress(NotFound):
                if obj["metadata"].get("finalizers"):
                    steps = [{"op": "remove", "path": "/metadata/finalizers"}]
                    await client.patch(resource, name, steps, inside, kind=PatchKind.JSON)
                await client.delete(resource, name, inside)
