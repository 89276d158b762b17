"""Scaled waiting times reach those who wait: a name that was imported elsewhere keeps its old value there."""

from __future__ import annotations

import subprocess
import sys

from tests.support.started import ROOT

LOOK = """
from tests.faults.process import KNOWN
from tests.faults.scales import GRACE_SECONDS, HASTY_JANITORS
from berth.dialects.metal3 import reconcile as metal3
from berth.dialects.vip import reconcile as vip

KNOWN[HASTY_JANITORS]()
assert vip.PACE.grace_seconds == GRACE_SECONDS
assert metal3.Pace().grace_seconds == GRACE_SECONDS
"""


def test_janitors_are_hasty_where_a_row_says_so() -> None:
    """In a process of its own, as an operator's: nothing takes it back."""
    subprocess.run([sys.executable, "-c", LOOK], check=True, cwd=ROOT)
