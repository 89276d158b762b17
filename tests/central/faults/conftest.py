"""How often: the short numbers by default; BERTH_FAULTS multiplies them."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def times() -> int:
    return int(os.environ.get("BERTH_FAULTS", "1"))
