"""The two ways to slow down that all packages share: growing pauses, and a bucket of tokens."""

from __future__ import annotations

import pytest

from berth.backoff import Backoff
from berth.token_bucket import Bucket


def test_pauses_double_up_to_their_ceiling_and_jitter_only_shortens_them() -> None:
    backoff = Backoff(0.5, 3.0, jitter=0.5)
    assert [backoff.delay(failures) for failures in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.delay(1, draw=1.0) == 0.5
    assert backoff.delay(10**6) == 3.0


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    clock = [0.0]
    bucket = Bucket(2.0, 3, lambda: clock[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    assert bucket.seconds_to_next() == pytest.approx(0.5)
    clock[0] += 0.5
    assert [bucket.take(), bucket.take()] == [True, False]
    clock[0] += 1000
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_what_was_dear_is_paid_by_those_who_come_next_for_a_limited_time() -> None:
    clock = [0.0]
    bucket = Bucket(2.0, 3, lambda: clock[0])
    assert bucket.take()
    bucket.charge(4, debt_seconds=10)
    assert not bucket.take()
    assert bucket.seconds_to_next() == pytest.approx(1.5)
    bucket.charge(10**6, debt_seconds=10)
    assert bucket.seconds_to_next() == pytest.approx(10.5)
    clock[0] += 10.5
    assert bucket.take()
