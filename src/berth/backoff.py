"""Growing pauses between attempts, as a value: whoever tries counts its failures in a row and keeps time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """First, doubled each time, never above the ceiling; `draw` (0 to 1) takes up to the jitter off."""

    first_seconds: float = 0.05
    most_seconds: float = 60.0
    jitter: float = 0.25

    def delay(self, failures: int, draw: float = 0.0) -> float:
        plain = min(self.most_seconds, self.first_seconds * 2.0 ** min(failures, 32))
        return plain * (1 - self.jitter * draw)
