"""How much hypothesis may spend: little by default, twenty times as much with BERTH_DEEP=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FACTOR = 20 if os.environ.get("BERTH_DEEP") == "1" else 1


def budget(examples: int, steps: int = 50) -> settings:
    return settings(
        max_examples=examples * FACTOR,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
