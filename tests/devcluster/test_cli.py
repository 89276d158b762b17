"""`berth devcluster` as a person runs it: what it prints, how it ends, what it leaves."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.support.processes import mentioning, wait_until

from berth.devcluster import Binaries

COMMAND = [sys.executable, "-m", "berth.cli.main", "devcluster"]
PATIENCE_SECONDS = 60.0  # a stop takes ten at most; a busy machine takes its own time on top


@dataclass
class Terminal:
    """A person with directories of their own; the programs are those of this machine."""

    root: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.root / "state"), "TMPDIR": str(self.root / "tmp")}
        return os.environ | own | self.more

    def run(self, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
        """`before` is what the shell does first."""
        command = [*COMMAND, *arguments]
        if before:
            command = ["sh", "-c", f'{before}; exec "$@"', "sh", *command]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def fails(self, *arguments: str, before: str = "") -> str:
        """What a failure says: one sentence, a code other than 0, no traceback, nothing left running."""
        done = self.run(*arguments, before=before)
        assert done.returncode == 1, done
        assert done.stderr.startswith("berth: ")
        assert done.stderr.count("\n") == 1, done.stderr
        assert "Traceback" not in done.stdout
        assert mentioning(str(self.root)) == []
        return done.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments], env=self.environment, stdout=subprocess.PIPE, text=True
        )


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    (tmp_path / "tmp").mkdir()
    terminal = Terminal(tmp_path)
    yield terminal
    for pid in mentioning(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


def _said(process: subprocess.Popen[str], last: str) -> dict[str, str]:
    """The exported variables among the lines up to the last one."""
    assert process.stdout
    exported: dict[str, str] = {}
    for line in process.stdout:
        if line.startswith(last):
            return exported
        name, _, value = line.strip().removeprefix("export ").partition("=")
        exported[name] = value
    raise AssertionError("it ended before it was ready")


def test_help_shows_examples(terminal: Terminal) -> None:
    shown = terminal.run("--help")

    assert shown.returncode == 0
    assert "export KUBECONFIG=$(berth devcluster kubeconfig)" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["stop", "absent"], "there is no dev cluster named absent"),
        (["kubeconfig", "absent"], "no dev cluster named absent is running"),
        (["stop", "../../etc"], "'../../etc' is no name for a dev cluster"),
        (["prepare", "kublet"], "there is no program kublet"),
    ],
)
def test_what_is_not_there_is_told(terminal: Terminal, arguments: list[str], sentence: str) -> None:
    assert sentence in terminal.fails(*arguments)


@pytest.mark.parametrize("command", ["start", "prepare"])
def test_without_programs_and_without_go_it_says_what_to_install(terminal: Terminal, command: str) -> None:
    terminal.more = {"XDG_CACHE_HOME": str(terminal.root), "PATH": "/nowhere", "BERTH_ENVTEST_URL": ""}

    assert "Go is not installed: install Go 1.24 or newer" in terminal.fails(command)


def test_assets_of_another_age_are_told(terminal: Terminal) -> None:
    (terminal.root / "etcd").write_text("#!/bin/sh\necho etcd Version: 3.3.0\n")
    (terminal.root / "etcd").chmod(0o755)
    terminal.more = {"KUBEBUILDER_ASSETS": str(terminal.root)}

    assert "etcd is older than 3.5 or does not run: unset KUBEBUILDER_ASSETS" in terminal.fails("start")


@pytest.mark.cluster
def test_a_cluster_in_the_foreground_serves_until_sigterm(terminal: Terminal) -> None:
    with terminal.start("start") as process:
        exported = _said(process, "Ctrl-C stops it.")
        kubectl = Binaries.locate(["kubectl"])["kubectl"]
        subprocess.run(
            [kubectl, "get", "ns"], env=os.environ | exported | {"HOME": str(terminal.root)}, check=True
        )
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE_SECONDS) == 0
    assert mentioning(str(terminal.root)) == []
    assert list((terminal.root / "tmp").iterdir()) == []


@pytest.mark.cluster
def test_ctrl_c_during_the_start_leaves_nothing(terminal: Terminal) -> None:
    with terminal.start("start") as process:
        assert wait_until(lambda: mentioning(str(terminal.root / "tmp")) != [], PATIENCE_SECONDS)
        process.send_signal(signal.SIGINT)

        assert process.wait(PATIENCE_SECONDS) == 130
    assert mentioning(str(terminal.root)) == []
    assert list((terminal.root / "tmp").iterdir()) == []


@pytest.mark.cluster
def test_a_part_that_dies_by_itself_ends_the_rest_with_a_sentence(terminal: Terminal) -> None:
    with subprocess.Popen(
        [*COMMAND, "start"],
        env=terminal.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        _said(process, "Ctrl-C stops it.")
        (etcd,) = [pid for pid in mentioning(str(terminal.root)) if _name(pid) == "etcd"]
        os.kill(etcd, signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE_SECONDS)

        assert process.returncode == 1
        assert said.startswith("berth: etcd ended")
    assert mentioning(str(terminal.root)) == []


@pytest.mark.cluster
def test_a_cluster_in_the_background_lives_until_it_is_stopped(terminal: Terminal) -> None:
    started = terminal.run("start", "--background", "--name", "one")
    assert started.returncode == 0, started.stderr
    path = terminal.run("kubeconfig", "one").stdout.strip()

    assert f"export KUBECONFIG={path}" in started.stdout
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert "ready" in terminal.run("list").stdout
    again = terminal.run("start", "--background", "--name", "one")
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "a dev cluster named one is running" in again.stderr

    assert terminal.run("stop", "one").returncode == 0
    assert mentioning(str(terminal.root)) == []
    assert not Path(path).exists()
    assert "one" not in terminal.run("list").stdout


@pytest.mark.cluster
def test_a_background_cluster_whose_keeper_was_killed_shows_as_stopped(terminal: Terminal) -> None:
    assert terminal.run("start", "--background").returncode == 0
    (keeper,) = [pid for pid in mentioning("berth.devcluster.keep") if pid in mentioning(str(terminal.root))]
    os.kill(keeper, signal.SIGKILL)

    assert wait_until(lambda: mentioning(str(terminal.root)) == [], PATIENCE_SECONDS)
    assert "stopped" in terminal.run("list").stdout
    assert "no dev cluster named default is running" in terminal.fails("kubeconfig")
    assert terminal.run("stop").returncode == 0


@pytest.mark.cluster
@pytest.mark.parametrize("where", [[], ["--background"]], ids=["foreground", "background"])
def test_a_busy_port_is_told(terminal: Terminal, where: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])

        assert f"port {port} cannot be had (address already in use)" in terminal.fails(
            "start", "--port", port, *where
        )


@pytest.mark.cluster
@pytest.mark.parametrize("where", [[], ["--background"]], ids=["foreground", "background"])
def test_a_disk_without_room_is_told(terminal: Terminal, where: list[str]) -> None:
    """The limit on a file's size stops etcd where a full disk would, and needs no rights."""
    assert "etcd ended: a file grew past what this shell allows" in terminal.fails(
        "start", *where, before="ulimit -f 20000"
    )


@pytest.mark.cluster
def test_a_directory_that_may_not_be_written_is_told(terminal: Terminal) -> None:
    (terminal.root / "file").touch()

    assert "cannot write" in terminal.fails("start", "--directory", str(terminal.root / "file" / "below"))


def test_prepare_says_where_each_program_is(terminal: Terminal) -> None:
    """Copies that can only tell their version: preparing what is there touches nothing."""
    (terminal.root / "bin").mkdir()
    for name in ("etcd", "kubectl"):
        (terminal.root / "bin" / name).write_text("#!/bin/sh\necho v3.6.5\n")
        (terminal.root / "bin" / name).chmod(0o755)
    terminal.more = {"PATH": f"{terminal.root / 'bin'}:{os.path.dirname(shutil.which('sh') or '/bin/sh')}"}
    shown = terminal.run("prepare", "etcd", "kubectl").stdout

    assert f"PATH  {terminal.root / 'bin' / 'etcd'}" in shown


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
