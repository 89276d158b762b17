"""The VIP dialect's world in tests: groups, Services and IP objects on a real API server, and what became.

Groups and IP objects are of cluster scope, so tests of one worker take turns: `World.clear` leaves nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.cluster import drop_namespace, make_namespace
from tests.support.operator import admin, built, eventually, gone, install, running

from berth.control.events import EVENTS
from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.crds import crds
from berth.errors import NotFound
from berth.kube import meta
from berth.kube.client import Client, PatchKind
from berth.kube.resource import Resource

Object = dict[str, Any]
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
G = ("1.1.1.0-24", "1.1.1.0/24", ("1.1.1.0", "1.1.1.255"))  # the seed's group


def service(name: str, kind: str = "LoadBalancer", port: int = 80, **spec: Any) -> Object:
    ports = spec.pop("ports", [{"name": f"p{port}", "port": port, "targetPort": 8080, "protocol": "TCP"}])
    annotations = spec.pop("annotations", None)
    labels = spec.pop("labels", None)
    body = {"type": kind, "selector": {"app": name}, "ports": ports, **spec}
    return built(kinds.SERVICE, name, body, annotations=annotations, labels=labels)


@dataclass(slots=True)
class World:
    client: Client
    namespace: str = "test"
    namespaces: list[str] = field(default_factory=list)

    # Made

    async def group(self, name: str, segment: str, excluded: Sequence[str] = ()) -> Object:
        spec = {"segment": segment, "excludedIPs": list(excluded)}
        return await self.client.create(kinds.IPGROUP, built(kinds.IPGROUP, name, spec))

    async def mapping(self, name: str, segment: str, excluded: Sequence[str] = ()) -> Object:
        spec = {"segment": segment, "excludedIPs": list(excluded), "keepalivedGroup": f"{name}-keepalived"}
        return await self.client.create(kinds.MAPPING, built(kinds.MAPPING, name, spec))

    async def service(self, name: str, kind: str = "LoadBalancer", **spec: Any) -> Object:
        namespace = spec.pop("namespace", self.namespace)
        return await self.client.create(kinds.SERVICE, service(name, kind, **spec), namespace)

    async def served(self, name: str, *addresses: str, **spec: Any) -> tuple[str, ...]:
        """A new LoadBalancer Service, and the addresses it got."""
        namespace = spec.get("namespace", self.namespace)
        await self.service(name, **spec)
        return await self.addresses(name, *addresses, namespace=namespace)

    async def vip(self, name: str, target: str, ip: str = "", **metadata: Any) -> Object:
        spec = {"service": target, **({"ip": ip} if ip else {})}
        return await self.client.create(
            kinds.VIRTUAL_IP, built(kinds.VIRTUAL_IP, name, spec, **metadata), self.namespace
        )

    async def more_namespace(self) -> str:
        name = f"vip-{uuid.uuid4().hex[:8]}"
        await self.client.create(NAMESPACES, built(NAMESPACES, name))
        self.namespaces.append(name)
        return name

    async def ip(self, address: str, pool: str, owner: str, label: str = kinds.GROUP_LABEL) -> Object:
        """As an operator would have left it."""
        about = {kinds.OWNER: f"{self.namespace}/{owner}"}
        return await self.client.create(
            kinds.IP, built(kinds.IP, address, labels={label: pool}, annotations=about)
        )

    async def show(self, name: str, *addresses: str) -> None:
        """Write a Service's status as some implementation would."""
        status = {"status": {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}}}
        await self.client.patch(kinds.SERVICE, name, status, self.namespace, subresource="status")

    async def hold(self, name: str, *finalizers: str) -> None:
        body = {"metadata": {"finalizers": list(finalizers or [kinds.SERVICE_FINALIZER])}}
        await self.client.patch(kinds.SERVICE, name, body, self.namespace)

    # Changed

    async def edit(self, name: str, spec: Object) -> Object:
        return await self.client.patch(kinds.SERVICE, name, {"spec": spec}, self.namespace)

    async def edit_group(self, name: str, spec: Object) -> Object:
        return await self.client.patch(kinds.IPGROUP, name, {"spec": spec})

    async def wipe_status(self, name: str) -> None:
        steps = [{"op": "remove", "path": "/status/loadBalancer"}]
        await self.client.patch(
            kinds.SERVICE, name, steps, self.namespace, kind=PatchKind.JSON, subresource="status"
        )

    async def delete(self, name: str) -> None:
        """Returns when it is gone."""
        await self.client.delete(kinds.SERVICE, name, self.namespace)
        await gone(self.client, kinds.SERVICE, name, self.namespace)

    # Seen

    async def get(self, name: str, namespace: str = "") -> Object:
        return await self.client.get(kinds.SERVICE, name, namespace or self.namespace)

    async def ingress(self, name: str, namespace: str = "") -> tuple[str, ...]:
        found = await self.get(name, namespace)
        return tuple(entry["ip"] for entry in (found["status"]["loadBalancer"].get("ingress") or ()))

    async def addresses(self, name: str, *expected: str, namespace: str = "") -> tuple[str, ...]:
        """Waits for these addresses, or for any."""

        async def look() -> tuple[str, ...]:
            found = await self.ingress(name, namespace)
            assert found if not expected else found == expected, f"{name} has {found}"
            return found

        return await eventually(look)

    async def ips(self) -> dict[str, Object]:
        listing = await self.client.list(kinds.IP)
        return {ip["metadata"]["name"]: ip for ip in listing.items}

    async def owned(self) -> dict[str, str]:
        """IP object's name → owner."""
        return {name: meta.annotations(ip)[kinds.OWNER] for name, ip in (await self.ips()).items()}

    async def eventually_owned(self, expected: dict[str, str]) -> None:
        async def look() -> bool:
            found = await self.owned()
            assert found == expected, found
            return True

        await eventually(look)

    async def event(self, name: str, text: str, reason: str = kinds.FAILED, namespace: str = "") -> Object:
        """The Event of that reason about the object whose message starts with the text."""

        async def look() -> Object:
            selector = f"involvedObject.name={name},reason={reason}"
            events = await self.client.list(EVENTS, namespace or self.namespace, field_selector=selector)
            said = [event["message"] for event in events.items]
            found = [event for event in events.items if event["message"].startswith(text)]
            assert found, said
            return found[-1]

        return await eventually(look)

    async def pending(self, name: str, text: str) -> str:
        """It has no address, owns none, could go at once, and says why: literally, then in more words."""

        async def look() -> str:
            found = await self.get(name)
            condition = meta.condition(found, kinds.CONDITION)
            assert condition is not None
            assert condition["message"].startswith(text), condition
            assert await self.ingress(name) == ()
            assert not meta.finalizers(found)
            assert f"{self.namespace}/{name}" not in (await self.owned()).values()
            return str(condition["message"])

        message = await eventually(look)
        await self.event(name, text)
        return message

    async def group_condition(self, name: str, status: str, reason: str) -> Object:
        async def look() -> Object:
            found = meta.condition(await self.client.get(kinds.IPGROUP, name), "Ready")
            assert found is not None
            assert (found["status"], found["reason"]) == (status, reason), found
            return found

        return await eventually(look)

    async def vip_state(self, name: str, state: str, message: str = "") -> Object:
        async def look() -> Object:
            vip = await self.client.get(kinds.VIRTUAL_IP, name, self.namespace)
            status = vip.get("status") or {}
            assert status.get("state") == state, status
            assert status.get("message", "").startswith(message), status
            return vip

        return await eventually(look)

    # In the end

    async def clear(self) -> None:
        for namespace in (self.namespace, *self.namespaces):
            await self._drop_all(kinds.VIRTUAL_IP, namespace)
            await self._drop_all(kinds.SERVICE, namespace)
        for resource in (kinds.IP, kinds.IPGROUP, kinds.MAPPING):
            await self._drop_all(resource, "")

    async def _drop_all(self, resource: Resource, namespace: str) -> None:
        try:
            listing = await self.client.list(resource, namespace)
        except NotFound:
            return
        for obj in listing.items:
            await _drop(self.client, resource, obj)
        for obj in listing.items:
            if (namespace, obj["metadata"]["name"]) != ("default", "kubernetes"):
                await gone(self.client, resource, obj["metadata"]["name"], namespace)


@asynccontextmanager
async def without_operator(cluster: DevCluster) -> AsyncIterator[World]:
    """A world in which nobody runs while the scene is set; in the end one clears it."""
    async with admin(cluster) as client:
        await install(client, crds())
        world = World(client, await make_namespace(cluster))
        yield world
        async with running(cluster, crds=(), dialects=("vip",)):
            await world.clear()
        await drop_namespace(cluster, world.namespace)


async def _drop(client: Client, resource: Resource, obj: Object) -> None:
    try:
        await client.delete(resource, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
    except NotFound:
        return


def numbered(prefix: str, numbers: Iterable[int]) -> list[str]:
    return [f"{prefix}{number}" for number in numbers]
