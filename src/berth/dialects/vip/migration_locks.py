"""What VirtualIPs on their way have promised to Services.

The IP object is the Service's from `reassociating` on, and the clone serves the address until the very end.
So the address is in use, whatever becomes of the Service: unlocked, deleted, made again.
"""

from __future__ import annotations

from typing import Any

from berth.control.informers import Informer
from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import STAGES, State, is_migrating, state_of
from berth.dialects.vip.virtualip import address_of
from berth.kube import meta
from berth.kube.meta import Ref
from berth.net import Block

Object = dict[str, Any]


class Promises:
    def __init__(self, kept: Informer) -> None:
        self._kept = kept

    # As far as we know

    def is_locked(self, service: Object) -> bool:
        name = meta.annotations(service).get(kinds.MIGRATING)
        vip = self._kept.cache.get(service["metadata"]["namespace"], name) if name else None
        return vip is not None and state_of(vip) in STAGES

    def blocks(self, owner: Ref) -> set[Block | None]:
        return {address_of(vip) for vip in self._of(owner) if _serves(vip)}

    # As it is now: a watch may not have told yet that a migration has begun

    async def is_locked_now(self, service: Object) -> bool:
        name = meta.annotations(service).get(kinds.MIGRATING)
        vip = await self._kept.fetch(service["metadata"]["namespace"], name) if name else None
        return vip is not None and is_migrating(vip) and state_of(vip) != State.MIGRATED

    async def is_promised(self, owner: Ref, block: Block) -> bool:
        named = [vip["metadata"]["name"] for vip in self._of(owner) if address_of(vip) == block]
        found = [await self._kept.fetch(owner.namespace, name) for name in named]
        return any(vip is not None and _serves(vip) for vip in found)

    def _of(self, owner: Ref) -> list[Object]:
        """The VirtualIPs of that Service; a VirtualIP promises nothing to another one."""
        is_service = owner.kind == kinds.SERVICE.kind
        return self._kept.cache.by("service", f"{owner.namespace}/{owner.name}") if is_service else []


def _serves(vip: Object) -> bool:
    """On its way, and its clone may still be there."""
    return state_of(vip) in STAGES and meta.has_finalizer(vip, kinds.CLONE_FINALIZER)


def services_of(vip: Object) -> tuple[str, ...]:
    names = {str((vip.get(part) or {}).get("service") or "") for part in ("spec", "status")}
    return tuple(f"{vip['metadata']['namespace']}/{name}" for name in sorted(names) if name)


def indexes() -> dict[str, Any]:
    return {"service": services_of}
