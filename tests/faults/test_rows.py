"""Every row of the bench with its short number: no violation. T02 is in test_kills.py, beside this one."""

from __future__ import annotations

import pytest
from tests.faults.row import Row
from tests.faults.rows import ROWS
from tests.faults.stage import Stage

SHORT = [row for row in ROWS if row.short and not row.id.startswith("T02")]
pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", SHORT, ids=[row.id.replace(" ", "-") for row in SHORT])
async def test_no_violation(stage: Stage, seed: int, row: Row) -> None:
    tally = await row.run(stage, row.short)
    assert tally.tried >= row.short
    assert not tally.violations, f"seed {seed}, {tally.tried} tried: {tally.violations[:10]}"
