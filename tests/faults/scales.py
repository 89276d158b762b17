"""Waiting times scaled and clocks set wrong in an operator's process, from the tests' side only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, tzinfo
from functools import partial
from typing import Self

from tests.faults.plants import put

from berth.dialects.kubipam import reconcile as kubipam
from berth.dialects.kubipam.orphans import Audit
from berth.dialects.metal3 import reconcile as metal3
from berth.dialects.orphans import Pace
from berth.dialects.vip import reconcile as vip
from berth.kube import watch

GRACE_SECONDS = 5.0
HASTY_JANITORS = "nobody's for five seconds is long enough"
SHORT_SILENCE = "two seconds of silence are enough"


def _scale_silence() -> None:
    put(watch, "WatchSettings", partial(watch.WatchSettings, silence_seconds=2.0))


def _scale_grace() -> None:
    """A deletion can win against the finalizer that is just being stored; whoever is killed then leaves an
    address to the janitors, who wait for minutes."""
    put(metal3, "Pace", lambda *_: Pace(1.0, GRACE_SECONDS))
    put(vip, "PACE", Pace(1.0, GRACE_SECONDS))
    hasty = partial(replace, every_seconds=1.0, grace_seconds=GRACE_SECONDS)
    put(kubipam, "Audit", lambda one, two, three, pace: Audit(one, two, three, hasty(pace)))


# Clocks that are wrong: the one that shows the date, not the one that measures durations

HOUR = 3600.0
CLOCKS = {
    "clock an hour ahead": HOUR,
    "clock an hour behind": -HOUR,
    "clock 400 days ahead": 400 * 24 * HOUR,
    "clock 400 days behind": -400 * 24 * HOUR,
}


def _shift(seconds: float) -> None:
    tell = time.time

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(tell() + seconds, tz)

    put(time, "time", lambda: tell() + seconds)
    for name, module in list(sys.modules.items()):
        if name.startswith("berth.") and getattr(module, "datetime", None) is datetime:
            put(module, "datetime", Shifted)


SCALES: dict[str, Callable[[], None]] = {
    SHORT_SILENCE: _scale_silence,
    HASTY_JANITORS: _scale_grace,
    **{name: partial(_shift, seconds) for name, seconds in CLOCKS.items()},
}
