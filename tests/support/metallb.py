"""A stand-in for MetalLB: its kind, its controller's Pod, and its rule for giving out addresses.

It assigns what `metallb.io/loadBalancerIPs` says if the pool of `metallb.io/address-pool` lists it, and
refuses what MetalLB refuses: an address outside that pool, and one shared with another key or an equal port.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from berth.dialects.vitistack import kinds
from berth.errors import AlreadyExists, Conflict, Gone, KubeError, NotFound, Unreachable
from berth.kube import meta
from berth.kube.client import Client
from berth.net import parse_address, parse_range

Object = dict[str, Any]
NAMESPACE = "metallb-system"
PLAIN = {"app": "metallb", "component": "controller"}
HELM = {"app.kubernetes.io/name": "metallb", "app.kubernetes.io/component": "controller"}


def crd() -> Object:
    """IPAddressPool of metallb.io/v1beta1, written down by hand."""
    selector = {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    allocation = {
        "type": "object",
        "properties": {
            "priority": {"type": "integer"},
            "namespaces": {"type": "array", "items": {"type": "string"}},
            "namespaceSelectors": selector,
            "serviceSelectors": selector,
        },
    }
    spec = {
        "type": "object",
        "required": ["addresses"],
        "properties": {
            "addresses": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            "autoAssign": {"type": "boolean", "default": True},
            "avoidBuggyIPs": {"type": "boolean", "default": False},
            "serviceAllocation": allocation,
        },
    }
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec}}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"kind": "IPAddressPool", "listKind": "IPAddressPoolList", "plural": "ipaddresspools"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "ipaddresspools.metallb.io"},
        "spec": {
            "group": "metallb.io",
            "scope": "Namespaced",
            "names": {**names, "singular": "ipaddresspool"},
            "versions": [version],
        },
    }


async def make_pool(client: Client, name: str, addresses: list[str]) -> None:
    """As an administrator makes it."""
    body = {
        "apiVersion": kinds.POOL.api_version,
        "kind": kinds.POOL.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"addresses": addresses, "autoAssign": False},
    }
    await client.create(kinds.POOL, body)


async def start_pod(client: Client, labels: dict[str, str] | None = None, name: str = "controller") -> None:
    """The controller's Pod, running and ready; nobody runs it here."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels or PLAIN},
        "spec": {"containers": [{"name": "controller", "image": "controller"}]},
    }
    with suppress(AlreadyExists):
        await client.create(kinds.POD, body)
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    await client.patch(kinds.POD, name, status, NAMESPACE, subresource="status")


async def stop_pod(client: Client, name: str = "controller") -> None:
    with suppress(NotFound):
        await client.delete(kinds.POD, name, NAMESPACE, grace_seconds=0)


@asynccontextmanager
async def assigning(client: Client) -> AsyncIterator[None]:
    """MetalLB's part, as a task, until the block is left."""
    task = asyncio.create_task(_follow(client))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _follow(client: Client) -> None:
    while True:
        with suppress(Gone, Unreachable):
            await _assign_all(client)
            version = await client.revision(kinds.SERVICE)
            stream = client.watch(kinds.SERVICE, resource_version=version, timeout_seconds=300)
            async with aclosing(stream) as events:
                async for event in events:
                    if event.type in ("ADDED", "MODIFIED"):
                        await _assign_all(client)


async def _assign_all(client: Client) -> None:
    with suppress(KubeError):
        services = (await client.list(kinds.SERVICE)).items
        pools = {
            pool["metadata"]["name"]: pool["spec"]["addresses"]
            for pool in (await client.list(kinds.POOL, NAMESPACE)).items
        }
        for service in services:
            if service["spec"].get("type") == "LoadBalancer":
                await _assign(client, service, services, pools)


async def _assign(
    client: Client, service: Object, services: list[Object], pools: dict[str, list[str]]
) -> None:
    wanted = _wanted(service)
    granted = wanted if _may_have(service, wanted, services, pools) else []
    present = [one["ip"] for one in _ingress(service)]
    if granted == present or not wanted:
        return
    status = {"loadBalancer": {"ingress": [{"ip": text} for text in granted]}}
    with suppress(NotFound, Conflict):
        where = service["metadata"]
        body = {"metadata": {"uid": where["uid"]}, "status": status}
        await client.patch(kinds.SERVICE, where["name"], body, where["namespace"], subresource="status")
        service["status"] = status


def _wanted(service: Object) -> list[str]:
    text = meta.annotations(service).get(kinds.METALLB_ADDRESSES, "")
    return [part.strip() for part in text.split(",") if part.strip()]


def _ingress(service: Object) -> list[Object]:
    return list(((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or [])


def _may_have(
    service: Object, wanted: list[str], services: Iterable[Object], pools: dict[str, list[str]]
) -> bool:
    pool = pools.get(meta.annotations(service).get(kinds.METALLB_POOL, ""), [])
    if not all(any(_covers(entry, text) for entry in pool) for text in wanted):
        return False
    return all(_share(service, other) for other in services if _clash(service, wanted, other))


def _clash(service: Object, wanted: list[str], other: Object) -> bool:
    assigned = {one["ip"] for one in _ingress(other)}
    return meta.uid(service) != meta.uid(other) and bool(assigned & set(wanted))


def _share(one: Object, other: Object) -> bool:
    key = meta.annotations(one).get(kinds.METALLB_KEY, "")
    ports = [{(port["protocol"], port["port"]) for port in each["spec"]["ports"]} for each in (one, other)]
    return bool(key) and key == meta.annotations(other).get(kinds.METALLB_KEY) and not ports[0] & ports[1]


def _covers(entry: str, text: str) -> bool:
    found, address = parse_range(entry), parse_address(text)
    return found.family is address.family and found.contains(address.value)
