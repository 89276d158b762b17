"""The auditor: a process of its own that looks at the API server every 100 ms while a storm runs. The one of
the IPAM-API's stores is in `store_auditor.py`.

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
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

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
    say([*market.wrong(seen), *lost.note(market.trade.litter(seen), time.monotonic())], out)


def say(found: list[str], out: TextIO) -> None:
    json.dump(found, out)
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
    """What an auditor has written until now."""

    lines: Path
    died: bool = False

    @property
    def looks(self) -> list[list[str]]:
        texts = self.lines.read_text().splitlines() if self.lines.exists() else []
        return [json.loads(text) for text in texts if text.endswith("]")]

    @property
    def violations(self) -> list[str]:
        found = list(dict.fromkeys(f"seen meanwhile: {one}" for look in self.looks for one in look))
        found += ["the auditor died by itself"] * self.died
        return found if self.looks else [*found, "the auditor saw nothing"]


@asynccontextmanager
async def looking(lines: Path, target: Callable[..., None], *arguments: Any) -> AsyncIterator[Report]:
    """An auditor's process beside what happens in the block; the report is complete when that is left."""
    report = Report(lines)
    child = await asyncio.to_thread(start, target, *arguments, str(lines))

    async def has_looked() -> bool:
        return bool(await asyncio.to_thread(lambda: report.looks))

    try:
        assert await until(has_looked, FIRST_LOOK_SECONDS), "the auditor never looked"
        yield report
    finally:
        report.died = not child.alive
        await asyncio.to_thread(child.kill)


@asynccontextmanager
async def audited(kubeconfig: Path, market: Market, home: Path) -> AsyncIterator[Report]:
    lines = home / f"audit-{market.namespace}.jsonl"
    async with looking(lines, _main, str(kubeconfig), market.trade.dialect, market.namespace) as report:
        yield report


def _main(kubeconfig: str, dialect: str, namespace: str, lines: str) -> None:
    with Path(lines).open("w") as out:
        asyncio.run(audit(Path(kubeconfig), dialect, namespace, out))


if __name__ == "__main__":
    asyncio.run(audit(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.stdout))
