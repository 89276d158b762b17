"""A page's commands in one shell, as a reader would paste them one after the other.

They run in an empty directory beside `deploy`, `examples` and the scripts. What a command left in the
background ends with the page. Ports that a page names are free ones here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.docs.pages import ROOT, Block

from berth.devcluster.ports import free

BESIDE = (
    "Makefile",
    "deploy",
    "examples",
    "pyproject.toml",
    "requirements-run.lock",
    "requirements.lock",
    "tools",
)
PORTS = (3000, 9443)
PAGE_SECONDS = 540.0


def run_page(blocks: Sequence[Block], directory: Path, environment: Mapping[str, str]) -> None:
    for name in BESIDE:
        (directory / name).symlink_to(ROOT / name)
    script = "\n".join(f"echo '### {block.place}' >&2\n{block.text}" for block in blocks)
    ports = dict(zip(PORTS, free(len(PORTS)), strict=True))
    for written, given in ports.items():
        script = script.replace(f":{written}", f":{given}")
    run(script, directory, {"BERTH_LISTEN": f"127.0.0.1:{ports[3000]}", **environment})


def run(script: str, directory: Path, environment: Mapping[str, str]) -> None:
    said = directory / "said"
    programs = f"{Path(sys.executable).parent}:{environment.get('PATH', os.environ['PATH'])}"
    with said.open("a") as output:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=directory,
            env={**os.environ, **environment, "PATH": programs},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        code = shell.wait(PAGE_SECONDS)
    finally:
        _end(shell.pid)
    assert code == 0, f"the block after the last ### failed:\n{said.read_text()}"


def _end(group: int) -> None:
    """Whatever is left of the page's session."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
