"""A token bucket on any clock: so many at once, then so many a second."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    __slots__ = ("_burst", "_clock", "_counted_at", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock()

    def take(self) -> bool:
        """Take a token if there is one."""
        self._fill()
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def charge(self, tokens: float, debt_seconds: float) -> None:
        """Take so many afterwards, for what turned out to be dear: the next ones wait, at most so long."""
        self._fill()
        self._tokens = max(self._tokens - tokens, -debt_seconds * self._per_second)

    def seconds_to_next(self) -> float:
        self._fill()
        return max(0.0, (1.0 - self._tokens) / self._per_second)

    def _fill(self) -> None:
        now = self._clock()
        # A rounding error must not make a caller wait forever for the last billionth of a token.
        gained = (now - self._counted_at) * self._per_second + 1e-9
        self._tokens = min(self._burst, self._tokens + gained)
        self._counted_at = now
