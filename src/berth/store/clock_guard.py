"""Notices a database clock that was moved: it is compared with one that nobody sets. After a jump nothing
is freed until the two agree again, or a person accepts the new time (`berth ledger accept-clock`). Nor is
anything freed by a replica whose own date is another than the database's: one of the two is wrong.

The last time that was believed is kept in the database, with the boot it belongs to, so that a restart in
the middle of a jump does not start from the wrong time.

Between two boots nothing is measured. A machine that was off for a day and a clock that is a day ahead look
the same, so that time is *doubted*: it does not count for what is freed. Everything that lapses is then freed
later by as much, never early, until the kernel has called its clock synchronised for a while, the clock goes
back by what was doubted, or a person accepts the time.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

JUMP_MS = 120_000
SETTLE_MS = 300_000  # how long the kernel must have called its clock synchronised
TIME_ERROR = 5  # what adjtimex answers as long as nobody has set the clock by a better one
WRITTEN = re.compile(r"(-?\d+) (-?\d+) (\S+)(?: (\d+))?(?: (\d+))?")
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


def synchronised() -> bool:
    """Whether the kernel says that its clock follows a better one (NTP, PTP); False if it cannot be asked."""
    try:
        status: int = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024))  # all zeros: only asks
    except (OSError, AttributeError):
        return False
    return 0 <= status < TIME_ERROR


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time that was believed: the database's, ours, the boot ours counts from, which time a person
    accepted last, and how much of the time is doubted. The last two go on from stamp to stamp, so that every
    replica comes to see them.
    """

    database_ms: int
    elapsed_ms: int
    boot: str
    accepted_ms: int = 0
    doubted_ms: int = 0

    def text(self) -> str:
        return f"{self.database_ms} {self.elapsed_ms} {self.boot} {self.accepted_ms} {self.doubted_ms}"

    @classmethod
    def read(cls, text: str) -> Stamp | None:
        found = WRITTEN.fullmatch(text)
        if found is None:
            return None
        return cls(int(found[1]), int(found[2]), found[3], int(found[4] or 0), int(found[5] or 0))


class ClockGuard:
    """One per process."""

    def __init__(
        self,
        elapsed_ms: Callable[[], int] = monotonic_ms,
        boot: str | None = None,
        is_synchronised: Callable[[], bool] = synchronised,
    ) -> None:
        self._elapsed_ms = elapsed_ms
        self._boot = boot if boot is not None else boot_id()
        self._is_synchronised = is_synchronised
        self._believed: Stamp | None = None
        self._synchronised_at: int | None = None
        self.jumped = False

    @property
    def doubted_ms(self) -> int:
        """How much of the believed time nobody has measured: by as much later everything is freed."""
        return self._believed.doubted_ms if self._believed is not None else 0

    def believes(self, now: int, stored: str) -> Stamp | None:
        """The stamp to keep, or None after a jump. `stored` is the one kept last, by whichever replica."""
        before = Stamp.read(stored)
        current = Stamp(now, self._elapsed_ms(), self._boot, before.accepted_ms if before else 0)
        doubted = self._doubted(current, before)
        self.jumped = doubted is None
        if doubted is None:
            return None
        settled = self._is_settled(current.elapsed_ms)
        self._believed = replace(current, doubted_ms=0 if settled else doubted)
        return self._believed

    def _doubted(self, current: Stamp, stored: Stamp | None) -> int | None:
        """How much of the time is doubted; None after a jump."""
        if stored is not None and stored.elapsed_ms < 0:
            return 0  # a person has accepted the clock as it is
        base = stored if stored is not None and stored.boot == self._boot else self._believed
        if base is not None and base.accepted_ms != current.accepted_ms:
            base = None  # … since this replica last believed it; another one was the first to see that
        if base is not None:
            step = current.database_ms - base.database_ms - (current.elapsed_ms - base.elapsed_ms)
            if step < -JUMP_MS and step + base.doubted_ms >= -JUMP_MS:
                return max(0, base.doubted_ms + step)  # it was ahead, as was doubted, and is set right
            return None if abs(step) > JUMP_MS else (stored or base).doubted_ms
        if stored is None:
            return 0
        gap = current.database_ms - stored.database_ms
        return None if gap < -JUMP_MS else stored.doubted_ms + (gap if gap > JUMP_MS else 0)

    def _is_settled(self, elapsed_ms: int) -> bool:
        """Not at the first glance: a daemon may call a clock synchronised and then step it."""
        if not self._is_synchronised():
            self._synchronised_at = None
        elif self._synchronised_at is None:
            self._synchronised_at = elapsed_ms
        return self._synchronised_at is not None and elapsed_ms - self._synchronised_at >= SETTLE_MS


def accepted(now: int) -> str:
    """The mark by which a person accepts the database's time."""
    return Stamp(now, -1, "accepted", now).text()
