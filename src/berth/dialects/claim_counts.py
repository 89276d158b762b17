"""How many claims of a dialect are in which state, for the metrics; kept in step with changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from berth.metrics import Metrics

Object = dict[str, Any]


class Tally:
    def __init__(self, metrics: Metrics, dialect: str) -> None:
        self._metrics = metrics
        self._dialect = dialect
        self._counts: Counter[str] = Counter()

    def listener(
        self, state: Callable[[Object | None], str]
    ) -> Callable[[Object | None, Object | None], None]:
        """For a cache of claims. The empty state is not counted."""
        return lambda old, new: self._change(state(old), state(new))

    def _change(self, before: str, after: str) -> None:
        if before == after:
            return
        self._counts[before] -= 1
        self._counts[after] += 1
        for state in filter(None, (before, after)):
            self._metrics.claims(self._dialect, state, self._counts[state])
