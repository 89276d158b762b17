"""T30: an older version of the operator and this one on one store, as in a rolling update and its way back.

The older one is taken from this repository's own past, and run as a command. Where there is no past (an
archive of the sources, a shallow clone) this version takes both parts.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from tests.faults.churn import Churn
from tests.faults.process import Command
from tests.faults.row import Tally
from tests.faults.stage import Stage
from tests.faults.trade import Market, Trade
from tests.faults.witness import watched

ROOT = Path(__file__).parents[2]
OLDER_BY = 60  # commits
OPERATOR = (
    f"{sys.executable} -m berth.cli.main operator --kubeconfig {{kubeconfig}} --dialects {{dialect}}"
    " --namespace {namespace} --health-listen 127.0.0.1:0"
)


async def side_by_side(stage: Stage, tally: Tally, times: int, trade: Trade) -> None:
    old = replace(stage, controller=await asyncio.to_thread(older, stage.home))
    async with stage.market(trade, 60) as market, watched(stage, market, tally):
        churn = Churn(market, stage.random, 40)
        for _ in range(times):
            found = await _handed_on(market, churn, old, stage)
            tally.add([*found, *await _handed_on(market, churn, stage, old)])


async def _handed_on(market: Market, churn: Churn, one: Stage, next: Stage) -> list[str]:
    """One serves, the next comes, both are at work for a while, the first one goes."""
    async with one.operator(market) as leaving:
        await churn.run(10)
        found = await churn.settle()
        async with next.operator(market):
            async with churn.going_on():
                await asyncio.sleep(3.0)
            found += await churn.settle()
            leaving.kill()
            await churn.run(10)
            return [*found, *await churn.settle()]


def older(home: Path) -> Command:
    archive = _past()
    if archive is None:
        return Command(OPERATOR)
    folder = home / "older"
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return Command(OPERATOR, {"PYTHONPATH": str(folder / "src")})


def _past() -> bytes | None:
    """The sources as they were, or None."""
    found = _git("rev-list", "--max-count=1", f"--skip={OLDER_BY}", "HEAD").strip().decode()
    return _git("archive", found, "src", "examples") or None if found else None


def _git(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, timeout=60, check=False)
    except OSError:
        return b""
    return done.stdout if done.returncode == 0 else b""
