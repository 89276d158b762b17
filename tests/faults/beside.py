"""Rows that live beside the code they are about, or among the attacks: the IPAM-API's and vitistack's.

They are tests of their own, on their own stores and control planes. Here each is run again and again by
pytest; whatever fails is a violation. How often a row tried is what its tests say (the fixture `tried`), read
from pytest's report.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from pathlib import Path
from xml.etree import ElementTree

from tests.faults.row import Play, Row, Tally
from tests.faults.stage import Stage

ROOT = Path(__file__).parents[2]
TOLD = 2000  # characters of what pytest says
FAULT = "E  "  # so begin the lines in which it says what was wrong; after them come hundreds of the log
CLEAR_UP_SECONDS = 30.0
API, API_FAULTS, VITISTACK = (
    "tests/central/test_",
    "tests/central/faults/test_",
    "tests/dialects/vitistack/test_",
)
METAL3, ATTACKS = "tests/dialects/metal3/test_", "tests/attacks/test_"


def again(which: str) -> Play:
    """One run of these tests, whatever number is asked for."""

    async def play(stage: Stage | None, tally: Tally, number: int) -> None:
        with tempfile.TemporaryDirectory(prefix="berth-beside-") as home:
            report = Path(home) / "report.xml"
            running = await _start(which, report)
            said, code = b"", 0
            try:
                said, _ = await running.communicate()
                code = running.returncode or 0
            finally:
                await asyncio.shield(_end(running))
                tally.tried += (counted := tried_in(report))
            tally.violations += _wrong(said.decode(errors="replace"), code, counted)

    return play


async def _start(which: str, report: Path) -> Process:
    """In a session of its own: what ends us from the keyboard does not end it twice."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *words(which),
        f"--junitxml={report}",
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


async def _end(running: Process) -> None:
    """Interrupted, it takes its control plane and stores down and still writes its report."""
    if running.returncode is not None:
        return
    running.send_signal(signal.SIGINT)
    try:
        await asyncio.wait_for(running.communicate(), CLEAR_UP_SECONDS)
    except TimeoutError:
        os.killpg(running.pid, signal.SIGKILL)
        await running.wait()


def words(which: str) -> list[str]:
    """`path -k word`, the path without its ending."""
    path, *rest = which.split(" ", 2)
    return [f"{path}.py", *rest]


def tried_in(report: Path) -> int:
    """The sum of what the tests said; nothing of those that never came to say it."""
    if not report.exists():
        return 0
    found = ElementTree.parse(report).iter("property")
    return sum(int(one.get("value", "0")) for one in found if one.get("name") == "tried")


def _wrong(text: str, code: int, counted: int) -> list[str]:
    if code:
        return [f"BERTH_SEED={os.environ.get('BERTH_SEED', '')}: {_told(text)}"]
    return [] if counted else [f"nothing was tried: {text[-TOLD:]}"]


def _told(text: str) -> str:
    """What pytest found wrong; its last words if it never came to say that."""
    faults = [line for line in text.splitlines() if line.startswith(FAULT)]
    return "\n".join(faults)[:TOLD] or text[-TOLD:]


def beside(id: str, fault: str, long: int, which: str) -> Row:
    return Row(id, fault, 0, long, again(which), ours=True, beside=which)


BESIDE: tuple[Row, ...] = (
    beside("T01 api", "API killed at every step, both stores", 10_000, API_FAULTS + "kills -k t01"),
    beside("T02 vitistack", "operator killed at every step", 2000, VITISTACK + "kills -k T02"),
    beside("T03 api", "killed at the n-th write of SQLite", 5000, API_FAULTS + "kills -k t03"),
    beside("T04 api", "power cut, unsynced writes lost", 2000, API_FAULTS + "kills -k t04"),
    beside("T05 api", "PostgreSQL killed, sessions ended", 2500, API_FAULTS + "outages -k t05"),
    beside("T06 api", "a standby of PostgreSQL promoted", 100, API_FAULTS + "standby -k t06"),
    beside("T14 api", "requests cut, refused, answers lost", 100_000, API_FAULTS + "outages -k t14"),
    beside("T14 vitistack", "calls and writes refused or lost", 100_000, VITISTACK + "storms -k lost"),
    beside("T15 api", "a slow disk, no free connection", 500, API_FAULTS + "scarce -k t15"),
    beside("T15 vitistack", "the store hangs", 500, VITISTACK + "storms -k hangs"),
    beside("T16 api", "disk full, then freed", 100, API_FAULTS + "scarce -k t16"),
    beside("T17 api", "the clock jumps", 300, API_FAULTS + "outages -k t17"),
    beside("T18 api", "192 clients on one /24, both stores", 1_000_000, API_FAULTS + "crowds -k t18"),
    beside(
        "T19 vitistack", "webhooks gone, hanging, failing, badly signed", 100, VITISTACK + "storms -k webhook"
    ),
    beside("T20 vitistack", "refused after our answer", 2000, VITISTACK + "refused -k given_back"),
    beside("T21 vitistack", "the same review up to 20 times", 20_000, VITISTACK + "faults -k review"),
    beside("T22 vitistack", "deleted and made again", 2000, VITISTACK + "storms -k again"),
    beside("T22 vitistack held", "held while deleted", 500, VITISTACK + "storms -k finalizer"),
    beside("T23 vitistack", "deleted while somebody is away", 500, VITISTACK + "storms -k away"),
    beside("T24 metal3", "moved by clusterctl to another cluster", 200, METAL3 + "move -k moves"),
    beside("T25 api", "two operators speak for one cluster", 50, API + "inventory -k t25"),
    beside("T25 vitistack", "a cloned cluster", 50, VITISTACK + "speaking -k one_cluster_id"),
    beside("T26 api", "rotation killed at every step, both stores", 2000, API_FAULTS + "kills -k t26"),
    beside("T26 vitistack", "rotation with every call lost", 2000, VITISTACK + "rotation -k rotation"),
    beside("T26 vitistack killed", "rotation killed at every step", 2000, VITISTACK + "kills -k T26"),
    beside("T27 api", "events replayed, forged, broken", 10_000, API + "ror -k t27"),
    beside("T28 api", "a secret of the run anywhere", 100, API_FAULTS + "crowds -k t28"),
    beside("T28 vitistack", "a secret of the run anywhere", 100, VITISTACK + "faults -k secret"),
    beside("T29 api", "guesses, slow and large bodies", 100_000, API_FAULTS + "crowds -k t29"),
    beside("T30 api", "older and newer versions on one store", 50, API_FAULTS + "versions -k t30"),
    beside("T34 api", "joining while the last one leaves", 10_000, API_FAULTS + "crowds -k t34"),
    beside(
        "T35 vitistack", "reviews forged, stale, replayed, oversized", 50_000, ATTACKS + "pod_floods -k t35"
    ),
    beside("T36 vitistack", "Services edited while they go", 5000, ATTACKS + "tenant_services -k t36"),
    beside("T38 api", "mounted files change, vanish, half written", 1000, API_FAULTS + "files -k t38"),
    beside("T45 api", "killed during a backup, both stores", 2000, API_FAULTS + "kills -k t45"),
)
