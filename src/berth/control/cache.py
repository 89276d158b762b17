"""The last seen objects of one kind, with indexes. Fed by a watch; our own writes show at once.

Reads never wait. An object is replaced only by a newer one (resourceVersion), so a late watch event cannot
undo what the API server has already answered to us. Listeners hear of every change as (old, new) and run
before the next event; they only take notes (queue a ref, update a count), they never do I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str]  # namespace, name
Listener = Callable[[Object | None, Object | None], None]
IndexKeys = Callable[[Object], Iterable[str]]
ENDS_KEPT = 10_000  # far more than end while one answer is on its way


def key_of(obj: Object) -> Key:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def revision_of(obj: Object) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def uid_of(obj: Object) -> str:
    return str(obj["metadata"].get("uid") or "")


class Cache:
    def __init__(self, indexes: Mapping[str, IndexKeys] | None = None) -> None:
        self._objects: dict[Key, Object] = {}
        self._keys_of = dict(indexes or {})
        self._indexes: dict[str, dict[str, dict[Key, Object]]] = {name: {} for name in self._keys_of}
        self._buried: dict[Key, int] = {}  # what we deleted ourselves, until the watch has caught up
        self._ended: dict[str, None] = {}  # UIDs of what the server last said is gone, the oldest first
        self._listeners: list[Listener] = []
        self._seen = 0  # the latest revision the watch has shown us
        self.written = 0  # the latest revision that answered a write of ours
        self.filled = False

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    def by(self, index: str, value: str) -> list[Object]:
        found = self._indexes[index].get(value)
        return list(found.values()) if found else []

    def count_by(self, index: str, value: str) -> int:
        return len(self._indexes[index].get(value, ()))

    # What the watch says (kube.watch.Sink).

    def replace(self, items: list[Object], resource_version: str) -> None:
        """A full list as of a revision: what is not on it is gone, unless we wrote it later.

        A revision below one already seen means a server restored from a backup: then the list alone counts.
        """
        as_of = int(resource_version or 0)
        if as_of < self._seen:
            self.reset(items, resource_version)
            return
        self._catch_up(items, as_of)
        self._seen = as_of
        self.filled = True

    def _catch_up(self, items: list[Object], as_of: int) -> None:
        listed = {key_of(obj) for obj in items}
        for obj in items:
            self._see_listed(obj, as_of)
        for key, obj in list(self._objects.items()):
            if key not in listed and revision_of(obj) <= as_of:
                self._end(obj)
                self._drop(key)
        self._buried = {key: revision for key, revision in self._buried.items() if revision > as_of}

    def reset(self, items: list[Object], resource_version: str) -> None:
        """A list from a server whose revisions went back: nothing seen before counts."""
        self._buried.clear()
        self._ended.clear()
        listed = {key_of(obj): obj for obj in items}
        for key in [k for k in self._objects if k not in listed]:
            self._drop(key)
        for key, obj in listed.items():
            self._set(key, obj)
        self._seen = int(resource_version or 0)
        self.written = 0
        self.filled = True

    def apply(self, type: str, obj: Object) -> None:
        self._seen = max(self._seen, revision_of(obj))
        if type == "DELETED":
            self._see_deleted(obj)
        else:
            self._see(obj)

    # What our own writes say.

    def put(self, obj: Object) -> None:
        """The API server's answer to a write of ours. It may come after the watch has shown the object's end:
        then it brings nothing back, since nothing would take it away again.
        """
        self.written = max(self.written, revision_of(obj))
        if uid_of(obj) not in self._ended:
            self._see(obj)

    def forget_deleted(self, obj: Object) -> None:
        """The API server confirmed that this very object is gone."""
        key = key_of(obj)
        held = self._objects.get(key)
        if held is None or uid_of(held) == uid_of(obj):
            self._buried[key] = max(revision_of(obj), revision_of(held) if held else 0)
            self._drop(key)

    def _see_listed(self, obj: Object, as_of: int) -> None:
        """A list is the whole truth as of its revision; only what we wrote later stands against it."""
        key = key_of(obj)
        held = self._objects.get(key)
        known = max(revision_of(held) if held is not None else -1, self._buried.get(key, -1))
        if known <= as_of and (held is None or revision_of(held) != revision_of(obj)):
            self._set(key, obj)

    def _see(self, obj: Object) -> None:
        key = key_of(obj)
        revision = revision_of(obj)
        held = self._objects.get(key)
        if held is not None and revision_of(held) >= revision:
            return
        if revision <= self._buried.get(key, -1):
            return
        self._set(key, obj)

    def _see_deleted(self, obj: Object) -> None:
        key = key_of(obj)
        self._buried.pop(key, None)
        self._end(obj)
        held = self._objects.get(key)
        if held is not None and revision_of(held) <= revision_of(obj):
            self._drop(key)

    def _end(self, obj: Object) -> None:
        if uid := uid_of(obj):
            self._ended[uid] = None
            if len(self._ended) > ENDS_KEPT:
                del self._ended[next(iter(self._ended))]

    def _set(self, key: Key, obj: Object) -> None:
        obj["metadata"].pop("managedFields", None)  # half of every object's bytes, and nobody reads them
        self._buried.pop(key, None)
        self._ended.pop(uid_of(obj), None)  # a backup can bring back what had ended
        old = self._objects.get(key)
        self._objects[key] = obj
        self._reindex(key, old, obj)
        self._tell(old, obj)

    def _drop(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is not None:
            self._reindex(key, old, None)
            self._tell(old, None)

    def _reindex(self, key: Key, old: Object | None, new: Object | None) -> None:
        for name, keys_of in self._keys_of.items():
            index = self._indexes[name]
            before = set(keys_of(old)) if old is not None else set()
            after = set(keys_of(new)) if new is not None else set()
            for value in before - after:
                index[value].pop(key, None)
                if not index[value]:
                    del index[value]
            for value in after:
                index.setdefault(value, {})[key] = new  # type: ignore[assignment]

    def _tell(self, old: Object | None, new: Object | None) -> None:
        for listener in self._listeners:
            listener(old, new)
