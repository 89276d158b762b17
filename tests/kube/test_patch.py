"""Two dicts → the smallest patch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.kube import patch

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("ab", max_size=2))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner)),
    max_leaves=12,
)
DICTS = st.dictionaries(st.sampled_from("abcd"), VALUES)


def merged(target: Any, change: Any) -> Any:
    """RFC 7386, written down as there."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}


@given(DICTS, DICTS)
def test_the_patch_applied_to_before_gives_after(before: dict[str, Any], after: dict[str, Any]) -> None:
    result = merged(without_nulls(before), patch.diff(before, after) or {})
    assert result == without_nulls(after)


@given(DICTS)
def test_the_same_object_needs_no_patch(obj: dict[str, Any]) -> None:
    assert patch.diff(obj, obj) is None
    assert patch.diff(obj, without_nulls(obj)) is None


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, {"a": {"y": None}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": 1}, {"a": {"x": None, "y": 1}}, {"a": {"y": 1}}),
        ({"a": 1}, {}, {"a": None}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({}, {"a": None}, None),
        ({"a": {}}, {}, {"a": None}),
    ],
)
def test_only_what_differs_is_in_the_patch(
    before: dict[str, Any], after: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert patch.diff(before, after) == expected


def test_a_guard_names_the_version_and_on_request_the_uid() -> None:
    obj = {"metadata": {"resourceVersion": "7", "uid": "u"}}
    change = {"metadata": {"labels": {"a": "b"}}, "status": {}}
    assert patch.guarded(change, obj)["metadata"] == {"labels": {"a": "b"}, "resourceVersion": "7"}
    assert patch.guarded(change, obj, uid=True)["metadata"]["uid"] == "u"
    assert change == {"metadata": {"labels": {"a": "b"}}, "status": {}}


def test_a_finalizer_is_added_to_a_list_that_is_there() -> None:
    obj = {"metadata": {"uid": "u", "finalizers": ["a"]}}
    assert patch.add_finalizer(obj, "b") == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/finalizers", "value": ["a"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "b"},
    ]
    assert patch.add_finalizer(obj, "a") is None


def test_the_first_finalizer_expects_that_there_is_none() -> None:
    assert patch.add_finalizer({"metadata": {"uid": "u"}}, "b") == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/finalizers", "value": None},
        {"op": "add", "path": "/metadata/finalizers", "value": ["b"]},
    ]


def test_a_finalizer_is_removed_from_the_version_it_was_seen_in() -> None:
    obj = {"metadata": {"uid": "u", "resourceVersion": "7", "finalizers": ["a", "b"]}}
    assert patch.remove_finalizer(obj, "b") == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]


def claim(**more: Any) -> dict[str, Any]:
    about = {"name": "c", "uid": "u", "resourceVersion": "7", "finalizers": ["theirs", "ours"]}
    return {"metadata": {**about, **more}, "status": {"a": 1, "b": 2}}


def test_a_change_of_the_status_names_the_object_and_its_version() -> None:
    assert patch.status_steps(claim(), {"a": None, "c": [3]}) == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "remove", "path": "/status/a"},
        {"op": "add", "path": "/status/c", "value": [3]},
    ]


def test_a_status_that_is_not_there_is_added_whole() -> None:
    steps = patch.status_steps({**claim(), "status": None}, {"a": 1, "b": None})
    assert steps[-1] == {"op": "add", "path": "/status", "value": {"a": 1}}
