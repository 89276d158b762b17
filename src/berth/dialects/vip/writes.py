"""The writes that a VirtualIP's life and its migration share: seen in the caches at once, and repeatable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.control.informers import Informer
from berth.dialects.vip.clone import clone_name, is_clone_of
from berth.errors import NotFound
from berth.kube import meta, patch
from berth.kube.client import PatchKind

Object = dict[str, Any]


class Objects:
    def __init__(self, vips: Informer, services: Informer) -> None:
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
        return await self._vips.remove_finalizer(vip, finalizer) or vip

    async def _patch_vip(
        self, vip: Object, body: Any, *, kind: PatchKind = PatchKind.MERGE, subresource: str = ""
    ) -> Object:
        try:
            return await self._vips.patch(vip, body, kind=kind, subresource=subresource)
        except NotFound:
            return vip

    # Services

    def service(self, namespace: str, name: str) -> Object | None:
        return self._services.cache.get(namespace, name)

    async def live_service(self, namespace: str, name: str) -> Object | None:
        return await self._services.fetch(namespace, name)

    async def create_service(self, service: Object) -> None:
        await self._services.create(service)

    async def patch_service(self, service: Object, change: Object, subresource: str = "") -> Object:
        """Refused if the Service is no longer the one we looked at."""
        body = patch.guarded(change, service, uid=True)
        return await self._services.patch(service, body, subresource=subresource)

    async def has_clone(self, vip: Object) -> bool:
        return await self._live_clone(vip) is not None

    async def delete_clone(self, vip: Object) -> None:
        """Gone already is fine; a Service of that name which is not its clone is left alone."""
        found = await self._live_clone(vip)
        if found is not None and not meta.is_deleting(found):
            await self._services.delete(found, if_unchanged=False)

    async def _live_clone(self, vip: Object) -> Object | None:
        found = await self._services.fetch(vip["metadata"]["namespace"], clone_name(vip))
        return found if found is not None and is_clone_of(found, vip) else None
