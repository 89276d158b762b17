"""What every dialect's reconcile.py says what wakes what with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from berth.control.cache import Cache
from berth.kube import meta

Object = dict[str, Any]
Changed = Callable[[Object | None, Object | None], None]  # old and new, as a cache tells it


class Listeners:
    """Who hears of changes once the dialect has started: before every cache is filled nothing is decided, so
    there is nobody to wake.
    """

    def __init__(self) -> None:
        self._started = False

    def start(self) -> None:
        self._started = True

    def on(self, cache: Cache, changed: Changed) -> None:
        cache.listen(lambda old, new: changed(old, new) if self._started else None)


def latest(old: Object | None, new: Object | None) -> Object:
    """The object a change is about: as it is, or as it was."""
    obj = new or old
    assert obj is not None, "a change is of something"
    return obj


def is_changed(old: Object | None, new: Object | None) -> bool:
    """Did it come, go, begin to go, or is it asked to be something else?"""
    if old is None or new is None or meta.uid(old) != meta.uid(new):
        return True
    return bool(old.get("spec") != new.get("spec") or meta.is_deleting(old) != meta.is_deleting(new))


def by_age(objects: Iterable[Object]) -> list[Object]:
    """The oldest first: they have waited longest."""
    return sorted(
        objects, key=lambda obj: (obj["metadata"].get("creationTimestamp", ""), obj["metadata"]["name"])
    )


def full_name(obj: Object) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
