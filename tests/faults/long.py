"""The fault bench with its long numbers, as far as the time goes.

    python -m tests.faults.long [--minutes 120] [--seed N] [--rows T02,T08] [--dialect vip] [--controller CMD]
    python -m tests.faults.long --dialect cilium --controller 'CMD --kubeconfig {kubeconfig}'

Every row gets its share of the time, a control plane of its own, and is played in portions until its long
number is reached or its share is used up. Prints a line, and what was violated, when a row is done and one
table at the end, also when it is cut short (Ctrl-C, SIGTERM, SIGHUP); ends with 1 if anything was violated.

`--controller` drives another controller than ours: a command in which {kubeconfig}, {namespace} and {dialect}
are filled in. It gets the rows that ask nothing of our own operator's options, three times our time, and is
started again whenever it ends by itself. Before each row it serves once without any fault. Cilium's LB IPAM
speaks a dialect of its own, which is played only for another controller.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import FrameType

from tests.faults.beside import BESIDE
from tests.faults.churn import Churn
from tests.faults.process import Command
from tests.faults.row import Row, Tally
from tests.faults.rows import OTHERS, ROWS
from tests.faults.stage import Stage
from tests.faults.trade import Trade
from tests.faults.trades import TRADES
from tests.support.operator import admin, crds_of, install

from berth.devcluster import DevCluster

Results = list[tuple[Row, Tally]]
SHOWN = 20
PORTIONS = 50  # of a row's long number, if it ever gets that far


def main() -> None:
    options = _options()
    rows = wanted(options)
    results: Results = []
    try:
        _on_signals(_cut)
        _say(f"seed {options.seed}, {options.minutes:g} minutes, {len(rows)} rows")
        asyncio.run(_run(rows, options, results))
    except KeyboardInterrupt:
        _say("cut short")
    finally:  # whatever happened, hours of it are not lost
        _on_signals(signal.SIG_IGN)
        _show(results)
        _say(f"{len(results)} of {len(rows)} rows; repeat with --seed {options.seed}")
    sys.exit(1 if any(tally.violations for _, tally in results) else 0)


def _on_signals(do: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, do)


def _cut(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.long", description="The fault bench, long.")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--rows", default="", help="beginnings of row ids, separated by commas")
    parser.add_argument("--controller", default="", help="the command of another controller")
    parser.add_argument(
        "--dialect", default="", help="only rows of this one, or of api; cilium: with --controller"
    )
    return parser.parse_args()


def wanted(options: argparse.Namespace) -> list[Row]:
    return [row for row in _known(options) if _is_named(row, options)]


def _known(options: argparse.Namespace) -> tuple[Row, ...]:
    if not options.controller:
        return (*ROWS, *BESIDE)
    return (*(row for row in ROWS if not row.ours), *(OTHERS if options.dialect else ()))


def _is_named(row: Row, options: argparse.Namespace) -> bool:
    named = not options.rows or row.id.startswith(tuple(options.rows.split(",")))
    return named and (not options.dialect or row.id.split()[1] == options.dialect)


async def _run(rows: list[Row], options: argparse.Namespace, results: Results) -> None:
    ends_at = time.monotonic() + options.minutes * 60
    for number, row in enumerate(rows):
        part = row.share / sum(one.share for one in rows[number:])
        tally = Tally(ends_at=time.monotonic() + (ends_at - time.monotonic()) * part)
        results.append((row, tally))
        try:
            await _row(row, tally, options)
        except Exception as error:
            tally.violations.append(f"the row broke off: {error!r}")
        _say(_line(row, tally))
        _tell_violations(row, tally)


async def _row(row: Row, tally: Tally, options: argparse.Namespace) -> None:
    random = Random(f"{options.seed} {row.id}")
    if row.beside:
        await _portions(row, None, tally, random)
        return
    controller = Command(options.controller, kept=True) if options.controller else None
    async with DevCluster() as cluster, admin(cluster) as client:
        await install(client, crds_of("metal3", "kubipam", "vip"))
        with tempfile.TemporaryDirectory(prefix="berth-faults-") as home:
            stage = Stage(cluster, client, Path(home), random, controller=controller)
            if controller is not None:
                await _serve(stage, TRADES[row.id.split()[1]]())
            await _portions(row, stage, tally, random)


async def _serve(stage: Stage, trade: Trade) -> None:
    """Without a fault. What is done at the very first start only, like the CRDs, is none of the row's."""
    async with stage.market(trade, 4) as market, stage.operator(market):
        churn = Churn(market, stage.random, 2)
        await churn.ask(2)
        found = await churn.settle()
        assert not found, f"it does not serve without any fault: {found}"


async def _portions(row: Row, stage: Stage | None, total: Tally, random: Random) -> None:
    while total.tried < row.long and not total.is_over:
        os.environ["BERTH_SEED"] = str(
            random.getrandbits(32)
        )  # for rows that are tests: another draw each time
        portion = Tally(ends_at=total.ends_at)
        tries = min(max(row.long // PORTIONS, 1), row.long - total.tried)
        try:
            await row.run(stage, tries, portion)
        finally:
            total.tried += portion.tried
            total.violations += portion.violations
            total.seconds += portion.seconds


def _show(results: Results) -> None:
    _say("\n| row | fault | tried | violations | seconds |\n|---|---|---:|---:|---:|")
    for row, tally in results:
        _say(_line(row, tally))
    tried = sum(tally.tried for _, tally in results)
    wrong = sum(len(tally.violations) for _, tally in results)
    _say(f"| all | | {tried} | {wrong} | {sum(tally.seconds for _, tally in results):.0f} |\n")
    for row, tally in results:
        _tell_violations(row, tally)


def _tell_violations(row: Row, tally: Tally) -> None:
    for violation in tally.violations[:SHOWN]:
        _say(f"{row.id}: {violation}")


def _line(row: Row, tally: Tally) -> str:
    return f"| {row.id} | {row.fault} | {tally.tried} | {len(tally.violations)} | {tally.seconds:.0f} |"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
