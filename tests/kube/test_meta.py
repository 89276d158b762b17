"""Pure reads and edits of objects."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from berth.kube import meta
from berth.kube.meta import Ref

NOON = datetime(2025, 6, 23, 12, 0, tzinfo=UTC)


def thing(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "t", "uid": "u1", **metadata}}


def test_a_ref_reads_as_kind_namespace_and_name() -> None:
    assert str(meta.ref(thing(namespace="default"))) == "Thing default/t"
    assert str(meta.ref(thing())) == "Thing t"
    assert meta.ref(thing()) == Ref("Thing", "", "t")


def test_what_is_absent_or_null_reads_as_empty() -> None:
    obj = thing(labels=None, annotations=None, finalizers=None, ownerReferences=None)
    assert not meta.labels(obj)
    assert not meta.annotations(obj)
    assert not meta.finalizers(obj)
    assert not meta.owners(obj)
    assert meta.resource_version(obj) == ""
    assert not meta.is_deleting(obj)
    assert meta.condition({"status": None}, "Ready") is None


def test_a_deletion_timestamp_means_deleting() -> None:
    assert meta.is_deleting(thing(deletionTimestamp="2025-06-23T12:00:00Z"))


def test_a_finalizer_is_added_once_and_others_stay() -> None:
    obj = thing(finalizers=["other"])
    held = meta.with_finalizer(obj, "ours")
    assert meta.finalizers(held) == ["other", "ours"]
    assert meta.with_finalizer(held, "ours") is held
    assert meta.finalizers(meta.without_finalizer(held, "other")) == ["ours"]
    assert meta.without_finalizer(obj, "ours") is obj


def test_an_edit_leaves_the_object_it_was_given_as_it_was() -> None:
    obj = thing(finalizers=["a"], labels={"l": "1"}, annotations={"n": "1"})
    before = copy.deepcopy(obj)
    meta.with_finalizer(obj, "b")
    meta.with_labels(obj, {"l": "2"})
    meta.with_annotations(obj, {"n": None})
    assert obj == before


def test_labels_and_annotations_are_set_and_removed_by_key() -> None:
    obj = thing(labels={"keep": "1", "drop": "1"})
    changed = meta.with_labels(obj, {"drop": None, "new": "2"})
    assert meta.labels(changed) == {"keep": "1", "new": "2"}
    assert meta.with_labels(changed, {"new": "2", "absent": None}) is changed
    assert meta.annotations(meta.with_annotations(obj, {"a": "b"})) == {"a": "b"}


def test_an_owner_reference_carries_identity_and_flags() -> None:
    assert meta.owner_reference(thing(), controller=True, block=True) == {
        "apiVersion": "v1",
        "kind": "Thing",
        "name": "t",
        "uid": "u1",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_an_owner_is_known_by_its_uid() -> None:
    owned = thing(uid="u2", ownerReferences=[meta.owner_reference(thing())])
    assert meta.is_owned_by(owned, "u1")
    assert not meta.is_owned_by(owned, "u9")
    assert not meta.is_owned_by(thing(), "u1")


def test_a_condition_is_put_in_by_its_type_and_others_keep_their_place() -> None:
    conditions = [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]
    changed = meta.with_condition(conditions, {"type": "A", "status": "False", "reason": "Why"}, NOON)
    assert [condition["type"] for condition in changed] == ["A", "B"]
    assert changed[0] == {
        "type": "A",
        "status": "False",
        "reason": "Why",
        "lastTransitionTime": "2025-06-23T12:00:00Z",
    }


def test_the_transition_time_moves_only_with_the_status() -> None:
    first = meta.with_condition([], {"type": "Ready", "status": "False", "reason": "Waiting"}, NOON)
    later = NOON + timedelta(hours=1)
    same = meta.with_condition(first, {"type": "Ready", "status": "False", "reason": "Full"}, later)
    assert same[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert same[0]["reason"] == "Full"
    turned = meta.with_condition(same, {"type": "Ready", "status": "True", "reason": "Bound"}, later)
    assert turned[0]["lastTransitionTime"] == "2025-06-23T13:00:00Z"


def test_the_same_condition_again_changes_nothing() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "Bound", "message": ""}
    first = meta.with_condition([], ready, NOON)
    assert meta.with_condition(first, ready, NOON + timedelta(days=1)) == first


def test_conditions_are_found_read_and_removed() -> None:
    obj = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert meta.is_true(obj, "Ready")
    assert not meta.is_true(obj, "Other")
    assert meta.without_condition(obj["status"]["conditions"], "Ready") == []


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NOON, "2025-06-23T12:00:00Z"),
        (datetime(2025, 6, 23, 14, 0, tzinfo=timezone(timedelta(hours=2))), "2025-06-23T12:00:00Z"),
    ],
)
def test_times_are_written_in_utc(at: datetime, text: str) -> None:
    assert meta.timestamp(at) == text
    assert meta.parse_timestamp(text) == at


def test_micro_times_keep_their_fraction() -> None:
    assert meta.parse_timestamp("2025-06-23T12:00:00.123456Z") == NOON.replace(microsecond=123456)
