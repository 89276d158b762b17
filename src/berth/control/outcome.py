"""What a reconcile asks of the queue: nothing more, or another look after some seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """Settled until something changes."""


@dataclass(frozen=True, slots=True)
class After:
    """Look again after this long, whatever happens meanwhile."""

    seconds: float


Outcome = Done | After
DONE = Done()
