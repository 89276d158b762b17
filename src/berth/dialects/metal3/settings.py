"""What the metal3 dialect can be told."""

from __future__ import annotations

from dataclasses import dataclass

from berth.settings import setting


@dataclass(frozen=True, slots=True)
class Metal3Settings:
    watch_filter: str = setting(
        "",
        "--watch-filter",
        "metal3: only objects whose label cluster.x-k8s.io/watch-filter is this.",
        looks=("adopt",),
    )
    sweep_seconds: float = 60.0  # how often address objects without a claim are looked for
    orphan_seconds: float = 600.0  # how long one must have been without before it is collected
