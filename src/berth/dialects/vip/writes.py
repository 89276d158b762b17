"""The writes that a VirtualIP's life and its migration share: seen in the caches at once, and repeatable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.control.finalizers import remove_finalizer
from berth.control.informers import Informer
from berth.dialects.vip import kinds
from berth.dialects.vip.clone import clone_name, is_clone_of
from berth.errors import NotFound
from berth.kube import meta, patch
from berth.kube.client import Client, PatchKind

Object = dict[str, Any]


class Objects:
    def __init__(self, client: Client, vips: Informer, services: Informer) -> None:
        self._client = client
        self._vips = vips
        self._services = services

    # VirtualIPs

    def vip(self, namespace: str, name: str) -> Object | None:
        return self._vips.cache.get(namespace, name)

    async def write_status(self, vip: Object, changes: Mapping[str, str]) -> Object:
        """Only what differs; nothing at all while it is being deleted."""
        before = vip.get("status") or {}
        change = {key: value for key, value in changes.items() if before.get(key, "") != value}
        if not change or meta.is_deleting(vip):
            return vip
        return await self._patch_vip(
            vip, {"metadata": {"uid": meta.uid(vip)}, "status": change}, subresource="status"
        )

    async def hold(self, vip: Object, finalizer: str) -> Object:
        steps = patch.add_finalizer(vip, finalizer)
        return vip if steps is None else await self._patch_vip(vip, steps, kind=PatchKind.JSON)

    async def remove_finalizer(self, vip: Object, finalizer: str) -> Object:
        return await remove_finalizer(self._client, kinds.VIRTUAL_IP, self._vips.cache, vip, finalizer) or vip

    async def _patch_vip(
        self, vip: Object, body: Any, *, kind: PatchKind = PatchKind.MERGE, subresource: str = ""
    ) -> Object:
        namespace, name = vip["metadata"]["namespace"], vip["metadata"]["name"]
        try:
            written = await self._client.patch(
                kinds.VIRTUAL_IP, name, body, namespace, kind=kind, subresource=subresource
            )
        except NotFound:
            self._vips.cache.bury(vip)
            return vip
        self._vips.cache.observe(written)
        return written

    # Services

    def service(self, namespace: str, name: str) -> Object | None:
        return self._services.cache.get(namespace, name)

    async def live_service(self, namespace: str, name: str) -> Object:
        """Raises NotFound."""
        service = await self._client.get(kinds.SERVICE, name, namespace)
        self._services.cache.observe(service)
        return service

    async def create_service(self, service: Object) -> None:
        created = await self._client.create(kinds.SERVICE, service, service["metadata"]["namespace"])
        self._services.cache.observe(created)

    async def patch_service(self, service: Object, change: Object, subresource: str = "") -> Object:
        """Refused if the Service is no longer the one we looked at."""
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        body = patch.guarded(change, service, uid=True)
        written = await self._client.patch(kinds.SERVICE, name, body, namespace, subresource=subresource)
        self._services.cache.observe(written)
        return written

    async def has_clone(self, vip: Object) -> bool:
        return await self._live_clone(vip) is not None

    async def delete_clone(self, vip: Object) -> None:
        """Gone already is fine; a Service of that name which is not its clone is left alone."""
        found = await self._live_clone(vip)
        if found is None or meta.is_deleting(found):
            return
        namespace, name = vip["metadata"]["namespace"], clone_name(vip)
        try:
            left = await self._client.delete(kinds.SERVICE, name, namespace, uid=meta.uid(found))
        except NotFound:
            left = None
        if left is None:
            self._services.cache.bury(found)
        else:
            self._services.cache.observe(left)

    async def _live_clone(self, vip: Object) -> Object | None:
        namespace, name = vip["metadata"]["namespace"], clone_name(vip)
        try:
            found = await self._client.get(kinds.SERVICE, name, namespace)
        except NotFound:
            if (known := self.service(namespace, name)) is not None:
                self._services.cache.bury(known)
            return None
        return found if is_clone_of(found, vip) else None
