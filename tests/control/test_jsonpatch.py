"""jsonpatch: applied to the first value, the patch gives the second; nothing to do is an empty patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.control.jsonpatch import diff

keys = st.sampled_from(["a", "b", "a/b", "m~n", "", "~1"])
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("xy", max_size=2)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=4)


def applied(document: Any, patch: list[dict[str, Any]]) -> Any:
    """A plain reading of RFC 6902 for the three operations we write."""
    root = {"": copy.deepcopy(document)}
    for operation in patch:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")]
        place: Any = root
        for part in parts[:-1]:
            place = place[int(part)] if isinstance(place, list) else place[part]
        last: Any = int(parts[-1]) if isinstance(place, list) else parts[-1]
        if operation["op"] == "remove":
            del place[last]
        else:
            assert operation["op"] == ("add" if last not in place and isinstance(place, dict) else "replace")
            place[last] = operation["value"]
    return root[""]


@given(objects, objects)
def test_the_patch_leads_from_the_old_to_the_new(old: Any, new: Any) -> None:
    result = applied(old, diff(old, new))
    assert result == new
    assert diff(result, new) == []


@given(objects)
def test_the_same_needs_no_patch(value: Any) -> None:
    assert diff(value, copy.deepcopy(value)) == []


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {"a": 1}, [{"op": "add", "path": "/a", "value": 1}]),
        ({"a": 1}, {}, [{"op": "remove", "path": "/a"}]),
        ({"a": {"b/c": 1}}, {"a": {"b/c": 2}}, [{"op": "replace", "path": "/a/b~1c", "value": 2}]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [{"op": "replace", "path": "/a/1", "value": 3}]),
        ({"a": [1]}, {"a": [1, 2]}, [{"op": "replace", "path": "/a", "value": [1, 2]}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
    ],
)
def test_the_patch_is_the_short_one(old: Any, new: Any, patch: list[dict[str, Any]]) -> None:
    assert diff(old, new) == patch
