"""The auditor: a process of its own that looks at the API server every 100 ms while a storm runs.

    python -m tests.faults.auditor KUBECONFIG DIALECT NAMESPACE

It reads a snapshot of one revision and checks what must hold at any moment: no address has two holders, what
a claim shows is there, and no answer changes. An address may be nobody's for a while, between two writes or
until the next operator comes; for longer than anybody may have to wait (I4) it is lost. One JSON line a look;
one that sees a violation names it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from tests.faults.process import start
from tests.faults.stage import load_of_machine, until
from tests.faults.trade import Market
from tests.faults.trades import TRADES

from berth.errors import KubeError
from berth.kube import auth
from berth.kube.client import Client

EVERY_SECONDS = 0.1
FIRST_LOOK_SECONDS = 60.0
LOST_SECONDS = 30.0  # × the load of the machine, as for whoever waits


async def audit(kubeconfig: Path, dialect: str, namespace: str, out: TextIO) -> None:
    async with Client(auth.load(kubeconfig), user_agent="auditor", timeout_seconds=5.0) as client:
        market = Market(TRADES[dialect](), client, namespace)
        lost = Lost(LOST_SECONDS * load_of_machine())
        while True:
            await _look(market, lost, out)
            await asyncio.sleep(EVERY_SECONDS)


async def _look(market: Market, lost: Lost, out: TextIO) -> None:
    try:
        seen = await market.snapshot()
    except KubeError:
        lost.since.clear()  # the server is away, which may well be the fault of the row
        return
    json.dump([*market.wrong(seen), *lost.note(market.trade.litter(seen), time.monotonic())], out)
    out.write("\n")
    out.flush()


@dataclass(slots=True)
class Lost:
    """I2: what was nobody's at every look for so long."""

    seconds: float
    since: dict[str, float] = field(default_factory=dict)

    def note(self, litter: list[str], now: float) -> list[str]:
        self.since = {one: self.since.get(one, now) for one in litter}
        return [f"{one}, for {self.seconds:g} s" for one, at in self.since.items() if now - at > self.seconds]


@dataclass(slots=True)
class Report:
    looks: int = 0
    violations: tuple[str, ...] = ()
    died: bool = False


@asynccontextmanager
async def audited(kubeconfig: Path, market: Market, home: Path) -> AsyncIterator[Report]:
    """The auditor beside what happens in the block; the report is complete when the block is left."""
    report, lines = Report(), home / f"audit-{market.namespace}.jsonl"
    child = await asyncio.to_thread(
        start, _main, str(kubeconfig), market.trade.dialect, market.namespace, str(lines)
    )
    try:
        assert await until(partial(_has_looked, lines), FIRST_LOOK_SECONDS), "the auditor never looked"
        yield report
    finally:
        report.died = not child.alive
        await asyncio.to_thread(child.kill)
        _read(lines, report)


async def _has_looked(lines: Path) -> bool:
    return await asyncio.to_thread(_size, lines) > 0


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(lines: Path, report: Report) -> None:
    texts = lines.read_text().splitlines() if lines.exists() else []
    looks = [json.loads(text) for text in texts if text.endswith("]")]
    report.looks = len(looks)
    report.violations = tuple(dict.fromkeys(f"seen meanwhile: {one}" for look in looks for one in look))


def _main(kubeconfig: str, dialect: str, namespace: str, lines: str) -> None:
    with Path(lines).open("w") as out:
        asyncio.run(audit(Path(kubeconfig), dialect, namespace, out))


if __name__ == "__main__":
    asyncio.run(audit(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.stdout))
