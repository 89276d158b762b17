"""The bench is proven: each of these bugs, planted in the operator's process, is caught by a row."""

from __future__ import annotations

from functools import partial

import pytest
from tests.faults import canary, deleting, killing, leading, refusals, storms, watching
from tests.faults.kubipam import Kubipam
from tests.faults.metal3 import Metal3
from tests.faults.row import Tally
from tests.faults.rows import Deed
from tests.faults.stage import Stage
from tests.faults.trade import Trade

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.asyncio(loop_scope="session")]

SIX = Metal3("2001:db8::1", "2001:db8::")
FEW = partial(storms.several_operators, claims=40)
# Row, deed, tries, dialect, and the violation that shows the bug.
CAUGHT: dict[str, tuple[str, Deed, int, Trade, str]] = {
    "no unique index": ("T08", FEW, 20, Metal3(), "I[15]"),
    "ipv6 as text": ("T08", FEW, 20, SIX, "I[135]"),
    "record overwritten": ("T08", FEW, 20, Kubipam(), "I[135]"),
    "no start barrier": ("T23", deleting.while_away, 10, Metal3(), "I1"),
    "collected by name": ("T22", deleting.recreated_beside_a_late_one, 10, Metal3(), "I[135]"),
    "release in DELETE": ("T22", deleting.held_by_another, 1, Metal3(), "I1"),
    "late finalizer": ("T02", killing.every_write, 60, Kubipam(), "nobody's"),
    "undo on timeout": ("T14", refusals.lost_answers, 2000, Metal3(), "I[135]"),
    "no relist": ("T12", watching.watch_faults, 2, Metal3(), "I4"),
    "no leader check": ("T07", leading.leader_stopped, 1, Metal3(), "former leader"),
    "body logged": ("T28", canary.nothing_is_told, 1, Metal3(), "I6"),
    "errors are final": ("T13", refusals.conflicts, 1, Metal3(), "I4"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CAUGHT, ids=[name.replace(" ", "-") for name in CAUGHT])
async def test_a_planted_bug_is_caught(stage: Stage, seed: int, name: str) -> None:
    _, deed, tries, trade, kind = CAUGHT[name]
    tally = Tally(wanted=kind)
    await deed(stage.with_plants(name), tally, tries, trade)
    tally.violations += stage.take_found()
    assert tally.is_found, f"seed {seed}: {tally}"
