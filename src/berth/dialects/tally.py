"""How many claims of a dialect are in which state, for the metrics; kept in step with changes."""

from __future__ import annotations

from collections import Counter

from berth.metrics import Metrics


class Tally:
    def __init__(self, metrics: Metrics, dialect: str) -> None:
        self._metrics = metrics
        self._dialect = dialect
        self._counts: Counter[str] = Counter()

    def change(self, before: str, after: str) -> None:
        """A claim went from one state to another; the empty state is not counted."""
        if before == after:
            return
        self._counts[before] -= 1
        self._counts[after] += 1
        for state in filter(None, (before, after)):
            self._metrics.claims(self._dialect, state, self._counts[state])
