"""How many Services have an address from us and how many wait, for the metrics; kept in step with changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from berth.dialects.vip import kinds
from berth.dialects.vip.translate import ingress
from berth.kube import meta
from berth.metrics import Metrics

Object = dict[str, Any]


class Tally:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counts: Counter[str] = Counter()

    def change(self, old: Object | None, new: Object | None) -> None:
        before, after = _state(old), _state(new)
        if before == after:
            return
        self._counts[before] -= 1
        self._counts[after] += 1
        for state in (before, after):
            if state:
                self._metrics.claims("vip", state, self._counts[state])


def _state(service: Object | None) -> str:
    """Empty: not ours to count."""
    if service is None:
        return ""
    if meta.condition(service, kinds.CONDITION) is not None:
        return "Waiting"
    return "Bound" if ingress(service) and meta.has_finalizer(service, kinds.SERVICE_FINALIZER) else ""
