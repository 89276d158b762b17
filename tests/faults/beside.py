"""Rows that live beside the code they are about: the IPAM-API's and the vitistack dialect's.

They are tests of their own, on their own stores and control planes. Here each is run again and again by
pytest; whatever fails is a violation.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tests.faults.row import Play, Row, Tally
from tests.faults.stage import Stage

ROOT = Path(__file__).parents[2]
TOLD = 600  # characters of what pytest says in the end
PASSED = re.compile(r"(\d+) passed")
API, API_FAULTS, VITISTACK = (
    "tests/central/test_",
    "tests/central/faults/test_",
    "tests/dialects/vitistack/test_",
)

METAL3 = "tests/dialects/metal3/test_"


def again(tries: int, which: str) -> Play:
    """One run of these tests, whatever number is asked for; each that passed has tried so often."""

    async def play(stage: Stage | None, tally: Tally, number: int) -> None:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
            *_words(which),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await running.communicate()
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
        _judge(said.decode(errors="replace"), running.returncode or 0, tries, tally)

    return play


def _words(which: str) -> list[str]:
    """`path -k word`, the path without its ending."""
    path, *rest = which.split(" ", 2)
    return [f"{path}.py", *rest]


def _judge(text: str, code: int, tries: int, tally: Tally) -> None:
    passed = PASSED.search(text)
    tally.tried += tries * int(passed[1] if passed else 0)
    if code:
        tally.violations.append(text[-TOLD:])


def beside(id: str, fault: str, tries: tuple[int, int], which: str) -> Row:
    """`tries`: those of one test that passed, and the long number."""
    each, long = tries
    return Row(id, fault, 0, long, again(each, which), ours=True, beside=True)


BESIDE: tuple[Row, ...] = (
    beside("T01 api", "API killed at every step, both stores", (150, 10_000), API_FAULTS + "kills -k t01"),
    beside("T02 vitistack", "operator killed at every step", (20, 2000), VITISTACK + "kills"),
    beside("T03 api", "killed at the n-th write of SQLite", (100, 5000), API_FAULTS + "kills -k t03"),
    beside("T04 api", "power cut, unsynced writes lost", (50, 2000), API_FAULTS + "kills -k t04"),
    beside("T05 api", "PostgreSQL killed, sessions ended", (6, 500), API_FAULTS + "outages -k t05"),
    beside("T14 api", "requests cut, refused, answers lost", (2000, 100_000), API_FAULTS + "outages -k t14"),
    beside(
        "T14 vitistack", "calls and writes refused or lost", (2000, 100_000), VITISTACK + "storms -k lost"
    ),
    beside("T15 vitistack", "the store hangs", (20, 500), VITISTACK + "storms -k hangs"),
    beside("T16 api", "disk full, then freed", (1, 100), API_FAULTS + "outages -k t16"),
    beside("T17 api", "the clock jumps", (1, 300), API_FAULTS + "outages -k t17"),
    beside(
        "T18 api", "192 clients on one /24, both stores", (20_000, 1_000_000), API_FAULTS + "crowds -k t18"
    ),
    beside(
        "T19 vitistack", "webhooks gone, hanging, badly signed", (3, 100), VITISTACK + "storms -k webhook"
    ),
    beside("T20 vitistack", "refused after our answer", (1, 2000), VITISTACK + "refused"),
    beside("T21 vitistack", "the same review up to 20 times", (500, 20_000), VITISTACK + "faults -k review"),
    beside("T22 vitistack", "deleted and made again", (50, 2000), VITISTACK + "storms -k again"),
    beside("T22 vitistack held", "held while deleted", (10, 500), VITISTACK + "storms -k finalizer"),
    beside("T23 vitistack", "deleted while somebody is away", (30, 500), VITISTACK + "storms -k away"),
    beside("T24 metal3", "moved by clusterctl to another cluster", (1, 200), METAL3 + "move"),
    beside("T25 api", "two operators speak for one cluster", (1, 50), API + "inventory -k t25"),
    beside("T25 vitistack", "a cloned cluster", (1, 50), VITISTACK + "speaking"),
    beside("T26 api", "rotation killed at every step, both stores", (25, 2000), API_FAULTS + "kills -k t26"),
    beside("T26 vitistack", "rotation with every call lost", (1, 100), VITISTACK + "rotation"),
    beside("T27 api", "events replayed, forged, broken", (1000, 10_000), API + "ror -k t27"),
    beside("T28 api", "a secret of the run anywhere", (1, 100), API_FAULTS + "crowds -k t28"),
    beside("T28 vitistack", "a secret of the run anywhere", (1, 100), VITISTACK + "faults -k secret"),
    beside("T29 api", "guesses, slow and large bodies", (1, 100), API_FAULTS + "crowds -k t29"),
    beside("T34 api", "joining while the last one leaves", (100, 10_000), API_FAULTS + "crowds -k t34"),
)
