"""Bugs planted in an operator's process, and clocks scaled there, from the tests' side only.

Each is what a careless change might do to one rule of the product; `test_planted.py` shows that a row of the
bench catches it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from berth.kube import watch

PLANTS: dict[str, Callable[[], None]] = {}


def plant(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(change: Callable[[], None]) -> Callable[[], None]:
        PLANTS[name] = change
        return change

    return keep


@plant("two seconds of silence are enough")
def _scale_silence() -> None:
    watch.WatchSettings = partial(watch.WatchSettings, silence_seconds=2.0)  # type: ignore[misc, assignment]
