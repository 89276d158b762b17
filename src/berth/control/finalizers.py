"""Our finalizer goes from an object, and only from that one.

An object that is being deleted goes with its last finalizer. Where a PATCH took that away, the API server
deletes whatever has the name by then: of two operators that let go at once, the slower one may take the next
object of the name along. A PUT names the UID, and the server holds its own delete to that.
"""

from __future__ import annotations

from berth.control.cache import Cache
from berth.errors import NotFound
from berth.kube import meta, patch
from berth.kube.client import Client, PatchKind
from berth.kube.meta import Object
from berth.kube.resource import Resource


async def remove_finalizer(
    client: Client, resource: Resource, cache: Cache, obj: Object, finalizer: str
) -> Object | None:
    """The object without it, None if it is gone. Raises Conflict if it changed since we looked."""
    without = meta.without_finalizer(obj, finalizer)
    if without is obj:
        return obj
    try:
        if meta.is_deleting(obj):
            left: Object | None = await client.replace(resource, without)
        else:
            namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            steps = patch.remove_finalizer(obj, finalizer)
            left = await client.patch(resource, name, steps, namespace, kind=PatchKind.JSON)
    except NotFound:
        left = None
    if left is None or (meta.is_deleting(left) and not meta.finalizers(left)):
        cache.forget_deleted(left or obj)
        return None
    cache.put(left)
    return left
