"""Notices a database clock that was moved: it is compared with one that nobody sets. After a jump nothing
is freed until the two agree again, or a person accepts the new time (`berth ledger accept-clock`). Nor is
anything freed by a replica whose own date is another than the database's: one of the two is wrong.

The last time that was believed is kept in the database, with the boot it belongs to, so that a restart in
the middle of a jump does not start from the wrong time. After a reboot only a step back can be told.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

JUMP_MS = 120_000
WRITTEN = re.compile(r"(-?\d+) (-?\d+) (\S+)(?: (\d+))?")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def apart(one_ms: int, other_ms: int) -> bool:
    """Whether two clocks cannot both be right."""
    return abs(one_ms - other_ms) > JUMP_MS


def monotonic_ms() -> int:
    """Counts suspended time too, where the system has such a clock."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000


def boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time that was believed: the database's, ours, the boot ours counts from, and which time a person
    accepted last. That goes on from stamp to stamp, so that every replica comes to see it.
    """

    database_ms: int
    elapsed_ms: int
    boot: str
    accepted_ms: int = 0

    def text(self) -> str:
        return f"{self.database_ms} {self.elapsed_ms} {self.boot} {self.accepted_ms}"

    @classmethod
    def read(cls, text: str) -> Stamp | None:
        found = WRITTEN.fullmatch(text)
        return cls(int(found[1]), int(found[2]), found[3], int(found[4] or 0)) if found else None


class ClockGuard:
    """One per process."""

    def __init__(self, elapsed_ms: Callable[[], int] = monotonic_ms, boot: str | None = None) -> None:
        self._elapsed_ms = elapsed_ms
        self._boot = boot if boot is not None else boot_id()
        self._believed: Stamp | None = None
        self.jumped = False

    def believes(self, now: int, stored: str) -> Stamp | None:
        """The stamp to keep, or None after a jump. `stored` is the one kept last, by whichever replica."""
        before = Stamp.read(stored)
        current = Stamp(now, self._elapsed_ms(), self._boot, before.accepted_ms if before else 0)
        self.jumped = self._is_jump(current, before)
        if self.jumped:
            return None
        self._believed = current
        return current

    def _is_jump(self, current: Stamp, stored: Stamp | None) -> bool:
        if stored is not None and stored.elapsed_ms < 0:
            return False  # a person has accepted the clock as it is
        base = stored if stored is not None and stored.boot == self._boot else self._believed
        if base is not None and base.accepted_ms != current.accepted_ms:
            base = None  # … since this replica last believed it; another one was the first to see that
        if base is not None:
            passed = current.elapsed_ms - base.elapsed_ms
            return apart(current.database_ms - base.database_ms, passed)
        return stored is not None and current.database_ms < stored.database_ms - JUMP_MS


def accepted(now: int) -> str:
    """The mark by which a person accepts the database's time."""
    return Stamp(now, -1, "accepted", now).text()
