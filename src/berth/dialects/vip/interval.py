"""`RECONCILIATION_INTERVAL_MS`, as upstream reads it: an unsigned 32-bit decimal, or else a minute."""

from __future__ import annotations

from berth import log

USUAL_MS = 60_000
MOST_MS = 2**32 - 1
LEAST_SECONDS = 1.0  # a smaller one would only burn a processor


def interval_seconds(text: str) -> float:
    if text.isascii() and text.isdigit() and 0 < int(text) <= MOST_MS:
        return max(LEAST_SECONDS, int(text) / 1000)
    if text:
        log.get("berth.vip").warning(
            "RECONCILIATION_INTERVAL_MS is no number of milliseconds", given=text, used=USUAL_MS
        )
    return USUAL_MS / 1000
