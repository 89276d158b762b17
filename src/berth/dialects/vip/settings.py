"""What the vip dialect can be told."""

from __future__ import annotations

from dataclasses import dataclass

from berth.dialects.vip.interval import interval_seconds
from berth.settings import listed, setting


@dataclass(frozen=True, slots=True)
class VipSettings:
    classes: tuple[str, ...] = setting(
        ("",),
        "--vip-classes",
        "Comma list of the loadBalancerClass values vip serves; empty: Services without one.",
        read=listed,
        looks=("explain", "adopt"),
    )
    resync_seconds: float = setting(
        60.0,
        "--reconciliation-interval-ms",
        "How often the vip dialect looks at everything once more; what is no number means 60000.",
        environment=("RECONCILIATION_INTERVAL_MS",),
        typed=str,
        written="",
        read=interval_seconds,
    )
