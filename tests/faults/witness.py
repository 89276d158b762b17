"""Who looks on while a row runs: the auditor ten times a second, the chronicle at every revision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faults.auditor import audited
from tests.faults.chronicle import chronicled
from tests.faults.row import Tally
from tests.faults.stage import Stage
from tests.faults.trade import Market


@asynccontextmanager
async def watched(stage: Stage, market: Market, tally: Tally) -> AsyncIterator[None]:
    """With both beside it; what they saw is the row's."""
    async with remembered(market, tally), audited(stage.cluster.kubeconfig, market, stage.home) as report:
        yield
    tally.violations += report.violations


@asynccontextmanager
async def remembered(market: Market, tally: Tally) -> AsyncIterator[None]:
    """With the chronicle only."""
    async with chronicled(market) as chronicle:
        yield
    tally.violations += chronicle.violations(market)
