"""Two dicts → the smallest patch, or nothing; and the guards that make a patch safe to send.

Merge patches (RFC 7386) for what we own alone, guarded by the resource version where a lost update would
hurt. JSON patches (RFC 6902) for lists which others edit too: they name what they expect to find with
`test`, so they need no resource version and still cannot undo another writer's change. A failed `test` and
a failed guard both come back as `Conflict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.kube import meta

Patch = dict[str, Any]
Operation = dict[str, Any]


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> Patch | None:
    """The merge patch that turns `before` into `after`; None if they are the same to the API server.

    To Kubernetes a null field and an absent one are the same, so a None in `after` means absent. Lists are
    replaced whole, which is all a merge patch can do.
    """
    patch: Patch = {
        key: None for key, value in before.items() if value is not None and after.get(key) is None
    }
    for key, value in after.items():
        if value is None:
            continue
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if (inner := diff(old, value)) is not None:
                patch[key] = inner
        elif value != old or type(value) is not type(old):
            patch[key] = _without_nulls(value)
    return patch or None


def guarded(patch: Mapping[str, Any], obj: Mapping[str, Any], *, uid: bool = False) -> Patch:
    """The merge patch, refused with Conflict if the object is no longer the one we looked at."""
    guard = {"resourceVersion": meta.resource_version(obj)}
    if uid:
        guard["uid"] = meta.uid(obj)
    return {**patch, "metadata": {**patch.get("metadata", {}), **guard}}


def add_finalizer(obj: Mapping[str, Any], finalizer: str) -> list[Operation] | None:
    """The JSON patch that adds it; None if it is there. Refused if anyone came or went meanwhile: another
    operator that holds the object may have answered it since, and what comes next would go over that."""
    present = meta.finalizers(obj)
    if finalizer in present:
        return None
    as_seen = {"op": "test", "path": "/metadata/finalizers", "value": list(present) or None}
    path, value = ("/metadata/finalizers/-", finalizer) if present else ("/metadata/finalizers", [finalizer])
    return [*_same(obj), as_seen, {"op": "add", "path": path, "value": value}]


def set_annotation(obj: Mapping[str, Any], name: str, value: str | None) -> list[Operation]:
    """The JSON patch for one annotation; None: without it. Empty if it is so already. Refused if the object
    is not the version we looked at: its answer is the newest one, and what comes next goes over that."""
    present = meta.annotations(obj)
    if present.get(name) == value:
        return []
    as_seen, path = [*_same(obj), _same_version(obj)], "/metadata/annotations/" + _escaped(name)
    if value is None:
        return [*as_seen, {"op": "remove", "path": path}]
    if obj["metadata"].get("annotations") is not None:
        return [*as_seen, {"op": "add", "path": path, "value": value}]
    return [*as_seen, {"op": "add", "path": "/metadata/annotations", "value": {name: value}}]


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def remove_finalizer(obj: Mapping[str, Any], finalizer: str) -> list[Operation]:
    """The JSON patch that removes it from the version we looked at. Not for an object that is being deleted:
    see control.finalizers."""
    path = f"/metadata/finalizers/{meta.finalizers(obj).index(finalizer)}"
    return [*_same(obj), _same_version(obj), {"op": "remove", "path": path}]


def status_steps(obj: Mapping[str, Any], change: Mapping[str, Any]) -> list[Operation]:
    """The JSON patch for this change of status fields, refused if the object is not the version we looked at.
    Unlike a merge patch it may be joined by tests of its own."""
    if not obj.get("status"):
        stored = {key: value for key, value in change.items() if value is not None}
        return [*_same(obj), _same_version(obj), {"op": "add", "path": "/status", "value": stored}]
    steps = [
        {"op": "remove", "path": f"/status/{key}"}
        if value is None
        else {"op": "add", "path": f"/status/{key}", "value": value}
        for key, value in change.items()
    ]
    return [*_same(obj), _same_version(obj), *steps]


def _same_version(obj: Mapping[str, Any]) -> Operation:
    return {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version(obj)}


def _same(obj: Mapping[str, Any]) -> list[Operation]:
    """An object that was deleted and made again under the same name is not ours to patch."""
    uid = meta.uid(obj)
    return [{"op": "test", "path": "/metadata/uid", "value": uid}] if uid else []


def _without_nulls(value: Any) -> Any:
    # In a merge patch a null would delete; inside lists nulls are values and stay.
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value
