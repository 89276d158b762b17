"""`berth up` as a process: it reaches its tables, and Ctrl-C leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import mentioning, wait_until

from berth.dialects import DIALECTS

START_SECONDS = 240.0
STOP_SECONDS = 60.0
BODY = {
    "secret": "a-secret-of-yours",
    "zone": "inet",
    "ip_family": "ipv4",
    "service": {"service_name": "web", "namespace_id": "ns-1", "cluster_id": "cluster-1"},
}


class Up:
    """The command in a session of its own, as a terminal gives it one, with its temporary files in `home`."""

    def __init__(self, home: Path, *flags: str) -> None:
        self._output = home.parent / "output"
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "berth.cli.main", "up", *flags],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(home), "COLUMNS": "200"},
            )

    def said(self) -> str:
        return self._output.read_text()

    def wait_for(self, text: str) -> str:
        wait_until(lambda: text in self.said() or self.process.poll() is not None, START_SECONDS)
        assert text in self.said()
        return self.said()

    def interrupt(self) -> int:
        """What Ctrl-C does: the signal goes to every process of the terminal's group."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(STOP_SECONDS)


@contextmanager
def up(tmp_path: Path, *flags: str) -> Iterator[Up]:
    home = tmp_path / "home"
    home.mkdir()
    running = Up(home, *flags)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


@pytest.mark.cluster
@pytest.mark.slow
def test_it_shows_a_table_per_dialect_and_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        said = running.wait_for("leaves nothing behind")
        assert mentioning(str(tmp_path / "home"))
        shown = _try(said)
        assert running.interrupt() == 0, running.said()
    assert "applying the examples …" in said, "what takes its time is told where there is no terminal too"
    titles = {line.strip() for line in said.splitlines()}
    dialects = {dialect.name for dialect in DIALECTS}
    assert dialects <= titles, f"no table for {sorted(dialects - titles)}"
    assert "Left out" not in said
    assert "nothing yet" not in said
    assert "waits: " not in said
    assert "2a05:1234::/128" in said  # and not a picture for what stands between two colons
    barred = {line.split()[0] for line in shown.splitlines() if "░" in line}
    assert dialects <= barred, "berth pools tells how full the pools of every dialect are"
    assert mentioning(str(tmp_path / "home")) == []
    assert list((tmp_path / "home").iterdir()) == []


def _try(said: str) -> str:
    """The five commands, pasted into one shell; what they answered."""
    commands = [line for line in said.partition("Try:\n")[2].splitlines() if line.startswith("  ")]
    assert len(commands) == 5
    shell = ["bash", "-euo", "pipefail", "-c", "\n".join(commands)]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_api_only_answers_the_command_it_shows_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with up(tmp_path, "--api-only", "--listen", "127.0.0.1:0") as running:
        said = running.wait_for("Ctrl-C stops it")
        command = re.search(r"curl -s (\S+)/v2/address -d '(.*)'", said)
        assert command is not None
        assert json.loads(command[2]) == BODY
        assert _post(f"{command[1]}/v2/address", command[2])["address"]
        assert running.interrupt() == 0, running.said()
    assert list((tmp_path / "home").iterdir()) == []


def test_a_wrong_address_is_one_sentence(tmp_path: Path) -> None:
    with up(tmp_path, "--api-only", "--listen", "nowhere") as running:
        assert running.process.wait(START_SECONDS) == 1
    assert running.said() == (
        "berth: --listen must be host:port, for example 127.0.0.1:3000, not 'nowhere'.\n"
    )


def test_a_disk_without_room_is_one_sentence(tmp_path: Path) -> None:
    """No file may have a single byte: as on a full disk, and it needs no rights."""
    command = f"ulimit -f 0; exec {sys.executable} -m berth.cli.main up --api-only"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=START_SECONDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("berth: cannot write a temporary directory (TMPDIR): No usable temporary")
    assert done.stderr.count("\n") == 1


def test_without_programs_and_without_go_it_says_what_to_install(tmp_path: Path) -> None:
    nothing = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/nowhere", "BERTH_ENVTEST_URL": ""}
    done = subprocess.run(
        [sys.executable, "-m", "berth.cli.main", "up"],
        env={**os.environ, "TMPDIR": str(tmp_path), **nothing},
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("berth: Go is not installed: install Go 1.24 or newer")
    assert (done.stderr.count("\n"), "Traceback" in done.stdout) == (1, False)
    assert not list(tmp_path.glob("berth-up-*"))


def _post(url: str, body: str) -> dict[str, Any]:
    """As curl -d sends it, its content type included."""
    request = urllib.request.Request(url, body.encode(), method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        return dict(json.load(answer))
