"""Good news can wait: Events about Services that were served are spread over time, so that a flood of them
does not cost the API server as much again. Warnings never come this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from berth.control.events import Recorder
from berth.control.pending import Type

PER_SECOND, BURST, WAITING = 5.0, 10, 2000


class Calmly:
    def __init__(self, events: Recorder) -> None:
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._next_at = float("-inf")  # when the next one is due, if they come one after another
        self._waiting = 0

    def event(self, about: Mapping[str, Any], type_: Type, reason: str, text: str) -> None:
        now = self._loop.time()
        self._next_at = max(self._next_at, now - BURST / PER_SECOND) + 1 / PER_SECOND
        if self._next_at <= now:
            self._events.event(about, type_, reason, text)
        elif self._waiting < WAITING:
            self._waiting += 1
            self._loop.call_at(self._next_at, self._late, about, type_, reason, text)

    def _late(self, about: Mapping[str, Any], type_: Type, reason: str, text: str) -> None:
        self._waiting -= 1
        self._events.event(about, type_, reason, text)
