"""The clock guard: believes steady time, holds back after a jump, until time is right again or accepted."""

from __future__ import annotations

import pytest

from berth.store.clock_guard import ClockGuard, Stamp, accepted

HOUR = 3_600_000
T0 = 1_700_000_000_000


class Elapsed:
    def __init__(self) -> None:
        self.ms = 5_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def elapsed() -> Elapsed:
    return Elapsed()


def guard_at(elapsed: Elapsed, boot: str = "b1") -> ClockGuard:
    return ClockGuard(elapsed, boot)


def test_steady_time_is_believed(elapsed: Elapsed) -> None:
    guard, stored = guard_at(elapsed), ""
    for step in range(5):
        elapsed.ms += 30_000
        stamp = guard.believes(T0 + step * 30_000, stored)
        assert stamp is not None
        stored = stamp.text()


@pytest.mark.parametrize("drift_ms", [-20_000, -1, 1, 20_000])
def test_t17_a_clock_that_drifts_is_followed(elapsed: Elapsed, drift_ms: int) -> None:
    """T17: retention is the database's time, also where it runs a little fast or slow."""
    guard, now, stored = guard_at(elapsed), T0, ""
    for _ in range(50):
        elapsed.ms += 30_000
        now += 30_000 + drift_ms
        stamp = guard.believes(now, stored)
        assert stamp is not None
        stored = stamp.text()


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 400 * 24 * HOUR, -400 * 24 * HOUR, 121_000])
def test_t17_a_jump_holds_back_until_it_is_undone(elapsed: Elapsed, jump: int) -> None:
    guard = guard_at(elapsed)
    stamp = guard.believes(T0, "")
    assert stamp is not None
    for _ in range(3):
        elapsed.ms += 30_000
        assert guard.believes(T0 + elapsed.ms + jump, stamp.text()) is None
    assert guard.jumped
    assert guard.believes(T0 + elapsed.ms - 5_000, stamp.text()) is not None


def test_a_jump_is_accepted_by_a_person(elapsed: Elapsed) -> None:
    guard = guard_at(elapsed)
    stamp = guard.believes(T0, "")
    assert stamp is not None
    assert guard.believes(T0 + HOUR, stamp.text()) is None
    renewed = guard.believes(T0 + HOUR, accepted(T0 + HOUR))
    assert renewed is not None
    elapsed.ms += 1000
    assert guard.believes(T0 + HOUR + 1000, renewed.text()) is not None


def test_what_a_person_accepts_counts_for_replicas_on_every_host(elapsed: Elapsed) -> None:
    """The first one overwrites the mark; the others, with clocks of their own, still learn of it."""
    one, other = guard_at(elapsed, "b1"), guard_at(elapsed, "b2")
    stamp = one.believes(T0, "")
    assert stamp is not None
    assert other.believes(T0, stamp.text()) is not None
    assert one.believes(T0 + HOUR, stamp.text()) is None
    assert other.believes(T0 + HOUR, stamp.text()) is None
    renewed = one.believes(T0 + HOUR, accepted(T0 + HOUR))
    assert renewed is not None
    assert other.believes(T0 + HOUR, renewed.text()) is not None
    for guard in (one, other):
        assert guard.believes(T0 + 2 * HOUR, renewed.text()) is None, "it was accepted once, not for ever"


def test_a_stamp_of_the_version_before_is_read() -> None:
    assert Stamp.read("17 5 b1") == Stamp(17, 5, "b1")


def test_a_restart_during_a_jump_still_notices_it(elapsed: Elapsed) -> None:
    stamp = guard_at(elapsed).believes(T0, "")
    assert stamp is not None
    elapsed.ms += 30_000
    assert guard_at(elapsed).believes(T0 + HOUR, stamp.text()) is None


def test_after_a_reboot_a_step_back_is_a_jump_and_time_that_nobody_measured_is_doubted(
    elapsed: Elapsed,
) -> None:
    stored = Stamp(T0, 9_000_000, "b0").text()
    assert guard_at(elapsed).believes(T0 - HOUR, stored) is None
    for forward, doubted in ((1000, 0), (HOUR, HOUR)):
        stamp = guard_at(elapsed).believes(T0 + forward, stored)
        assert stamp is not None
        assert stamp.doubted_ms == doubted


def test_what_was_doubted_after_a_reboot_is_over_once_the_clock_is_set_back_by_it(elapsed: Elapsed) -> None:
    guard = guard_at(elapsed)
    stamp = guard.believes(T0 + HOUR, Stamp(T0, 9_000_000, "b0").text())
    assert stamp is not None
    elapsed.ms += 1000
    stamp = guard.believes(T0 + 1000, stamp.text())
    assert stamp is not None
    assert stamp.doubted_ms == 0


def test_an_unreadable_stamp_is_as_good_as_none(elapsed: Elapsed) -> None:
    assert guard_at(elapsed).believes(T0, "nonsense") is not None
