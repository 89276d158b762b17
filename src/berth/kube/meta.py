"""Refs, owners, finalizers, conditions: pure reads and edits of plain dicts.

An edit returns the object it was given when nothing changes and a new one otherwise, sharing what it did not
touch, so objects from a cache can be edited without copying them and "did it change" is an `is`.
Time is passed in; nothing here looks at a clock.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

Object = dict[str, Any]


class Ref(NamedTuple):
    """Which object: kind, namespace ("" for cluster scope), name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def ref(obj: Mapping[str, Any]) -> Ref:
    meta = obj["metadata"]
    return Ref(obj["kind"], meta.get("namespace", ""), meta["name"])


def uid(obj: Mapping[str, Any]) -> str:
    return str(obj.get("metadata", {}).get("uid", ""))


def resource_version(obj: Mapping[str, Any]) -> str:
    return str(obj.get("metadata", {}).get("resourceVersion", ""))


def labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return obj.get("metadata", {}).get("labels") or {}


def annotations(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return obj.get("metadata", {}).get("annotations") or {}


def is_deleting(obj: Mapping[str, Any]) -> bool:
    return bool(obj.get("metadata", {}).get("deletionTimestamp"))


# Finalizers


def finalizers(obj: Mapping[str, Any]) -> list[str]:
    return obj.get("metadata", {}).get("finalizers") or []


def has_finalizer(obj: Mapping[str, Any], finalizer: str) -> bool:
    return finalizer in finalizers(obj)


def with_finalizer(obj: Object, finalizer: str) -> Object:
    if has_finalizer(obj, finalizer):
        return obj
    return _with_meta(obj, "finalizers", [*finalizers(obj), finalizer])


def without_finalizer(obj: Object, finalizer: str) -> Object:
    if not has_finalizer(obj, finalizer):
        return obj
    return _with_meta(obj, "finalizers", [kept for kept in finalizers(obj) if kept != finalizer])


# Labels and annotations


def with_annotations(obj: Object, changes: Mapping[str, str | None]) -> Object:
    """Sets annotations; None removes one."""
    return _with_entries(obj, "annotations", changes)


def with_labels(obj: Object, changes: Mapping[str, str | None]) -> Object:
    """Sets labels; None removes one."""
    return _with_entries(obj, "labels", changes)


# Owners


def owner_reference(owner: Mapping[str, Any], *, controller: bool = False, block: bool = False) -> Object:
    """A reference to put on what `owner` owns; `block` keeps the owner until the owned object is gone."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    if controller:
        reference["controller"] = True
    if block:
        reference["blockOwnerDeletion"] = True
    return reference


def owners(obj: Mapping[str, Any]) -> list[Object]:
    return obj.get("metadata", {}).get("ownerReferences") or []


def is_owned_by(obj: Mapping[str, Any], owner_uid: str) -> bool:
    return any(reference.get("uid") == owner_uid for reference in owners(obj))


# Conditions


def condition(obj: Mapping[str, Any], kind: str) -> Object | None:
    """The status condition of that type."""
    return find_condition((obj.get("status") or {}).get("conditions") or (), kind)


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def find_condition(conditions: Sequence[Object], kind: str) -> Object | None:
    return next((found for found in conditions if found.get("type") == kind), None)


def with_condition(conditions: Sequence[Object], new: Mapping[str, Any], now: datetime) -> list[Object]:
    """The list with `new` put in by its type; every other entry, known to us or not, stays in its place.

    `lastTransitionTime` moves only with the status, as the Kubernetes conventions ask; a second call with the
    same condition returns an equal list, so a diff finds nothing to write.
    """
    old = find_condition(conditions, new["type"])
    merged = {**new, "lastTransitionTime": _transition(old, new, now)}
    if old is None:
        return [*conditions, merged]
    return [merged if found is old else found for found in conditions]


def without_condition(conditions: Sequence[Object], kind: str) -> list[Object]:
    return [found for found in conditions if found.get("type") != kind]


def _transition(old: Mapping[str, Any] | None, new: Mapping[str, Any], now: datetime) -> str:
    if old is not None and old.get("status") == new["status"] and old.get("lastTransitionTime"):
        return str(old["lastTransitionTime"])
    return timestamp(now)


# Time as the API server writes it


def timestamp(at: datetime) -> str:
    """metav1.Time: whole seconds, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _with_meta(obj: Object, field: str, value: Any) -> Object:
    return {**obj, "metadata": {**obj.get("metadata", {}), field: value}}


def _with_entries(obj: Object, field: str, changes: Mapping[str, str | None]) -> Object:
    before = obj.get("metadata", {}).get(field) or {}
    after = {key: value for key, value in {**before, **changes}.items() if value is not None}
    return obj if after == before else _with_meta(obj, field, after)
