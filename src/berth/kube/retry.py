"""What may be sent again, and when: only what the server certainly did not do, or what changes nothing.

429 means the server did not act, so anything may be repeated. 503 with Retry-After is repeated for reads; a
write may have been done. Waits are the server's plus jitter, so that many waiters do not come back
together.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from berth.errors import ServerError, StatusError, TooManyRequests
from berth.kube.http.transport import Request


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long we wait before we hand the error to the caller."""

    tries: int = 5
    # A server that wants to be left alone for longer gets its wish from the caller's queue, not from a worker
    # held here.
    longest_wait_seconds: float = 10.0
    first_wait_seconds: float = 0.2
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[float, float], float] = random.uniform

    def wait_seconds(self, request: Request, error: StatusError, attempt: int) -> float | None:
        """How long to wait before the next attempt; None: there is none. Attempts count from 1."""
        if attempt >= self.tries or not _may_repeat(request, error):
            return None
        asked = error.retry_after_seconds
        seconds = self.first_wait_seconds * 2 ** (attempt - 1) if asked is None else asked
        return None if seconds > self.longest_wait_seconds else seconds * self.jitter(1.0, 1.5)


def _may_repeat(request: Request, error: StatusError) -> bool:
    if isinstance(error, TooManyRequests):
        return True
    asked_to = isinstance(error, ServerError) and error.retry_after_seconds is not None
    return asked_to and error.code == 503 and request.is_read
