"""T02 with its short number, on every dialect that ledgers in the cluster: no violation."""

from __future__ import annotations

import pytest
from tests.faults.row import Row
from tests.faults.rows import ROWS
from tests.faults.stage import Stage

KILLS = [row for row in ROWS if row.id.startswith("T02")]
pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("row", KILLS, ids=[row.id.replace(" ", "-") for row in KILLS])
async def test_no_violation(stage: Stage, seed: int, row: Row) -> None:
    tally = await row.run(stage, row.short)
    assert tally.tried >= row.short
    assert not tally.violations, f"seed {seed}, {tally.tried} tried: {tally.violations[:10]}"
