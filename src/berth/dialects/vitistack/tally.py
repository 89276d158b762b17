"""How many Services list an address and how many wait for one, for the metrics; kept in step with changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from berth.dialects.vitistack.neighbours import Neighbours
from berth.metrics import Metrics

Object = dict[str, Any]


class Tally:
    def __init__(self, neighbours: Neighbours, metrics: Metrics) -> None:
        self._neighbours = neighbours
        self._metrics = metrics
        self._counts: Counter[str] = Counter()

    def change(self, old: Object | None, new: Object | None) -> None:
        before, after = self._state(old), self._state(new)
        if before == after:
            return
        self._counts[before] -= 1
        self._counts[after] += 1
        for state in filter(None, (before, after)):
            self._metrics.claims("vitistack", state, self._counts[state])

    def _state(self, service: Object | None) -> str:
        """Empty: not ours to count."""
        if service is None or not self._neighbours.is_served(service):
            return ""
        return "Bound" if self._neighbours.addresses_of(service) else "Waiting"
