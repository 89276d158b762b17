"""The cache shows our own writes at once and is never set back by a late event."""

from __future__ import annotations

from typing import Any

import pytest

from berth.control.cache import Cache

Object = dict[str, Any]


def thing(name: str, revision: int, uid: str = "u1", **more: Any) -> Object:
    meta = {"name": name, "namespace": "ns", "resourceVersion": str(revision), "uid": uid}
    return {"kind": "Thing", "metadata": meta, **more}


@pytest.fixture
def cache() -> Cache:
    return Cache({"colour": lambda obj: [obj["colour"]] if "colour" in obj else []})


def test_a_list_fills_the_cache(cache: Cache) -> None:
    assert not cache.filled
    cache.replace([thing("a", 1), thing("b", 2)], "5")
    assert cache.filled
    assert len(cache) == 2
    assert cache.get("ns", "a") is not None


def test_what_is_missing_from_a_later_list_is_gone(cache: Cache) -> None:
    cache.replace([thing("a", 1), thing("b", 2)], "5")
    cache.replace([thing("a", 1)], "9")
    assert cache.get("ns", "b") is None


def test_our_own_write_survives_a_list_that_is_older(cache: Cache) -> None:
    cache.replace([], "5")
    cache.put(thing("a", 8))
    cache.replace([], "7")
    assert cache.get("ns", "a") is not None


def test_a_late_event_does_not_undo_our_own_write(cache: Cache) -> None:
    cache.put(thing("a", 8, colour="red"))
    cache.apply("MODIFIED", thing("a", 7, colour="blue"))
    seen = cache.get("ns", "a")
    assert seen is not None
    assert seen["colour"] == "red"


def test_an_answer_that_comes_after_the_end_brings_nothing_back(cache: Cache) -> None:
    """The watch was quicker than the answer to our own write: nothing would take it away again."""
    cache.replace([thing("a", 1)], "5")
    cache.apply("MODIFIED", thing("a", 6))
    cache.apply("DELETED", thing("a", 7))
    cache.put(thing("a", 6))
    assert cache.get("ns", "a") is None
    cache.put(thing("a", 6, uid="u2"))
    assert cache.get("ns", "a") is not None, "another one, whose end nobody has shown"


def test_an_answer_that_comes_after_a_list_without_it_brings_nothing_back(cache: Cache) -> None:
    cache.replace([thing("a", 1)], "5")
    cache.replace([], "9")
    cache.put(thing("a", 6))
    assert cache.get("ns", "a") is None


def test_what_a_backup_brings_back_is_seen_and_heard_of_again(cache: Cache) -> None:
    cache.replace([thing("a", 1)], "5")
    cache.apply("DELETED", thing("a", 7))
    cache.replace([thing("a", 1)], "9")
    cache.put(thing("a", 10, colour="red"))
    seen = cache.get("ns", "a")
    assert seen is not None
    assert seen["colour"] == "red"


def test_only_the_latest_ends_are_remembered(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.control.cache.ENDS_KEPT", 2)
    for number in range(3):
        cache.apply("DELETED", thing(f"t{number}", 10 + number, uid=f"u{number}"))
    for number in range(3):
        cache.put(thing(f"t{number}", 1, uid=f"u{number}"))
    assert [obj["metadata"]["name"] for obj in cache] == ["t0"]


def test_what_we_deleted_does_not_come_back_with_a_late_event(cache: Cache) -> None:
    cache.put(thing("a", 8))
    cache.forget_deleted(thing("a", 8))
    cache.apply("MODIFIED", thing("a", 7))
    cache.apply("MODIFIED", thing("a", 8))
    assert cache.get("ns", "a") is None


def test_a_successor_under_the_same_name_is_seen_after_a_burial(cache: Cache) -> None:
    cache.put(thing("a", 8))
    cache.forget_deleted(thing("a", 8))
    cache.apply("ADDED", thing("a", 12, uid="u2"))
    assert cache.get("ns", "a") is not None


def test_the_deletion_of_a_predecessor_leaves_the_successor(cache: Cache) -> None:
    cache.put(thing("a", 12, uid="u2"))
    cache.apply("DELETED", thing("a", 9, uid="u1"))
    assert cache.get("ns", "a") is not None


def test_burying_another_incarnation_changes_nothing(cache: Cache) -> None:
    cache.put(thing("a", 12, uid="u2"))
    cache.forget_deleted(thing("a", 8, uid="u1"))
    assert cache.get("ns", "a") is not None


def test_revisions_that_went_back_mean_the_list_alone_counts(cache: Cache) -> None:
    cache.replace([thing("a", 40), thing("b", 50)], "60")
    cache.replace([thing("a", 10, colour="old")], "20")
    assert cache.get("ns", "b") is None
    seen = cache.get("ns", "a")
    assert seen is not None
    assert seen["colour"] == "old"


def test_a_list_is_the_truth_even_where_an_object_in_it_is_older(cache: Cache) -> None:
    """A store that was restored from a backup and has overtaken the old revision since."""
    cache.replace([thing("a", 40, colour="never was")], "50")
    cache.replace([thing("a", 10, colour="old")], "60")
    seen = cache.get("ns", "a")
    assert seen is not None
    assert seen["colour"] == "old"


def test_what_we_buried_comes_back_only_if_a_later_list_has_it(cache: Cache) -> None:
    cache.put(thing("a", 8))
    cache.forget_deleted(thing("a", 8))
    cache.replace([thing("a", 7)], "7")
    assert cache.get("ns", "a") is None
    cache.replace([thing("a", 7)], "9")
    assert cache.get("ns", "a") is not None


def test_a_watch_event_raises_the_mark_below_which_a_list_is_a_step_back(cache: Cache) -> None:
    cache.replace([], "5")
    cache.apply("ADDED", thing("a", 30))
    cache.replace([], "20")
    assert cache.get("ns", "a") is None


def test_indexes_follow_changes(cache: Cache) -> None:
    cache.put(thing("a", 1, colour="red"))
    cache.put(thing("b", 2, colour="red"))
    assert cache.count_by("colour", "red") == 2
    cache.put(thing("a", 3, colour="blue"))
    assert [obj["metadata"]["name"] for obj in cache.by("colour", "red")] == ["b"]
    cache.apply("DELETED", thing("b", 4))
    assert cache.by("colour", "red") == []


def test_listeners_hear_old_and_new(cache: Cache) -> None:
    heard: list[tuple[bool, bool]] = []
    cache.listen(lambda old, new: heard.append((old is not None, new is not None)))
    cache.put(thing("a", 1))
    cache.put(thing("a", 2))
    cache.apply("DELETED", thing("a", 3))
    assert heard == [(False, True), (True, True), (True, False)]


def test_field_ownership_is_not_kept(cache: Cache) -> None:
    obj = thing("a", 1)
    obj["metadata"]["managedFields"] = [{"manager": "x"}]
    cache.put(obj)
    seen = cache.get("ns", "a")
    assert seen is not None
    assert "managedFields" not in seen["metadata"]


def test_it_knows_the_latest_answer_to_our_own_writes(cache: Cache) -> None:
    cache.replace([thing("a", 1)], "5")
    cache.put(thing("a", 8))
    cache.put(thing("b", 7))
    assert cache.written == 8


def test_after_a_restart_no_earlier_write_counts(cache: Cache) -> None:
    cache.put(thing("a", 8))
    cache.reset([], "5")
    assert cache.written == 0
