"""Two JSON values → the JSON patch (RFC 6902) that turns the first into the second.

Admission answers may only carry this kind of patch. Objects are walked key by key; a list whose length stays
is walked entry by entry, any other list that differs is replaced whole: short enough and never wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Operation = dict[str, Any]


def diff(old: Any, new: Any, path: str = "") -> list[Operation]:
    return list(_diff(old, new, path))


def _diff(old: Any, new: Any, path: str) -> Iterator[Operation]:
    if old is new:
        return  # what was not touched is not walked: a pool may have 50,000 entries
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _objects(old, new, path)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _diff(before, after, f"{path}/{index}")
    elif not _same(old, new):
        yield {"op": "replace", "path": path, "value": new}


def _objects(old: dict[str, Any], new: dict[str, Any], path: str) -> Iterator[Operation]:
    for key in old:
        if key not in new:
            yield {"op": "remove", "path": _under(path, key)}
    for key, value in new.items():
        if key in old:
            yield from _diff(old[key], value, _under(path, key))
        else:
            yield {"op": "add", "path": _under(path, key), "value": value}


def _same(old: Any, new: Any) -> bool:
    """Python calls True and 1 equal, and 1 and 1.0; JSON calls only the latter two so."""
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _under(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
