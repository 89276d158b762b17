"""The fault bench with its long numbers, as far as the time goes.

    python -m tests.faults.long [--minutes 120] [--seed N] [--rows T02,T08]

Every row gets an equal share of the time and is played in portions, on one control plane, until its long
number is reached or its share is used up. Prints one table; ends with 1 if anything was violated.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

from tests.faults.row import Row, Tally
from tests.faults.rows import ROWS
from tests.faults.stage import Stage
from tests.support.operator import admin, crds_of, install

from berth.devcluster import DevCluster


def main() -> None:
    options = _options()
    rows = [row for row in ROWS if not options.rows or row.id.startswith(tuple(options.rows.split(",")))]
    _say(f"seed {options.seed}, {options.minutes:g} minutes, {len(rows)} rows")
    results = asyncio.run(_run(rows, options.minutes * 60, options.seed))
    _show(results)
    sys.exit(1 if any(tally.violations for _, tally in results) else 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.long", description="The fault bench, long.")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--rows", default="", help="beginnings of row ids, separated by commas")
    return parser.parse_args()


async def _run(rows: list[Row], seconds: float, seed: int) -> list[tuple[Row, Tally]]:
    ends_at = time.monotonic() + seconds
    results = []
    async with DevCluster() as cluster, admin(cluster) as client:
        await install(client, crds_of("metal3", "kubipam", "vip"))
        with tempfile.TemporaryDirectory(prefix="berth-faults-") as home:
            for number, row in enumerate(rows):
                stage = Stage(cluster, client, Path(home), Random(f"{seed} {row.id}"))
                share = (ends_at - time.monotonic()) / (len(rows) - number)
                tally = await _row(stage, row, share)
                results.append((row, tally))
                _say(_line(row, tally))
    return results


async def _row(stage: Stage, row: Row, seconds: float) -> Tally:
    """Portions of the short number: an error of the bench itself is told and ends the row."""
    total = Tally()
    while total.tried < row.long and (not total.tried or total.seconds < seconds):
        try:
            portion = await row.run(stage, min(max(row.short, 1), row.long - total.tried))
        except (Exception, ExceptionGroup) as error:
            total.violations.append(f"the row broke off: {error!r}")
            return total
        total.tried += portion.tried
        total.violations += portion.violations
        total.seconds += portion.seconds
    return total


def _show(results: Iterable[tuple[Row, Tally]]) -> None:
    _say("\n| row | fault | tried | violations | seconds |\n|---|---|---:|---:|---:|")
    for row, tally in results:
        _say(_line(row, tally))
    for row, tally in results:
        for violation in tally.violations[:20]:
            _say(f"{row.id}: {violation}")


def _line(row: Row, tally: Tally) -> str:
    return f"| {row.id} | {row.fault} | {tally.tried} | {len(tally.violations)} | {tally.seconds:.0f} |"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
