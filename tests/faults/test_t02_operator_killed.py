"""T02: the operator is killed before and after every one of its writes; no address is lost or doubled."""

from __future__ import annotations

import pytest
from tests.faults.killing import KillBench, Point, Scenario
from tests.faults.metal3 import Metal3Scenario

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", [Metal3Scenario()], ids=["metal3"])
async def test_killed_at_every_write_nothing_is_lost_or_doubled(bench: KillBench, scenario: Scenario) -> None:
    writes = await bench.record(scenario)
    assert len(writes) >= 15, [str(write) for write in writes]
    found: dict[str, list[str]] = {}
    tried = 0
    for number in range(len(writes)):
        for after in (False, True):
            point = Point(number, after)
            tried += 1
            if wrong := await bench.run(scenario, point):
                found[f"{point} ({writes[number]})"] = wrong
    assert not found, f"{len(found)} of {tried} tries: {found}"
