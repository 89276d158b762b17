"""What the kubipam dialect can be told: nothing of its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KubipamSettings:
    pass
