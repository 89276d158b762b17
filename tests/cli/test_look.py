"""The looks at a cluster as a person types them: what is wrong is told before a cluster is asked, and no
table cuts a name, however narrow the terminal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from berth.cli import inspect
from berth.cli.main import app
from berth.cli.tables import table_lines
from berth.dialects.view import PoolRow

LONG = "a-team-with-a-long-name/" + "p" * 253
HALF = PoolRow("metal3", "IPPool", "team/half", 10, 5, 5, "")
WIDE = PoolRow("metal3", "IPPool", LONG, 10, 5, 5, "")


@contextmanager
def terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A real one; what was written to it, when it is closed."""
    monkeypatch.setenv("COLUMNS", str(columns))
    ours, theirs = os.openpty()
    lines: list[str] = []
    with os.fdopen(theirs, "w") as screen, redirect_stdout(screen):
        yield lines
    lines += _everything(ours).decode().splitlines()
    os.close(ours)


def _everything(descriptor: int) -> bytes:
    """All that was written to a terminal whose other end is closed."""
    found = b""
    with suppress(OSError):  # how the end is told
        while part := os.read(descriptor, 4096):
            found += part
    return found


def test_no_cell_is_ever_cut() -> None:
    lines = table_lines(("POOL", "FREE"), [(LONG, "1"), ("short", "2")])
    assert lines == ["POOL" + " " * 275 + "FREE", f"{LONG}  1", "short" + " " * 274 + "2"]


@pytest.mark.parametrize(("columns", "bar"), [(200, 20), (60, 14), (40, 0)])
def test_a_narrow_terminal_costs_the_bar_first(
    columns: int, bar: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(columns, monkeypatch) as lines:
        inspect._print_pools([HALF])
    assert sum(lines[1].count(block) for block in "█░") == bar
    assert lines[1].split()[:5] == ["metal3", "IPPool", "team/half", "5", "10"]
    assert not bar or len(lines[1]) <= columns


def test_a_name_longer_than_the_terminal_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(80, monkeypatch) as lines:
        inspect._print_pools([HALF, WIDE])
    assert LONG in "".join(lines)
    assert "…" not in "".join(lines)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (HALF, "5 of 10 free"),
        (HALF._replace(used=10, free=0), "0 of 10 free, full"),
        (HALF._replace(state="is being deleted"), "5 of 10 free, is being deleted"),
        (PoolRow("vitistack", "zone", "inet", 0, 3, 0, "in this cluster"), "3 used, in this cluster"),
        (PoolRow("metal3", "IPPool", "n/gone", 0, 0, 0, "does not exist"), "does not exist"),
        (PoolRow("kubipam", "IPAMRange", "n/empty", 0, 0, 0, ""), "has no addresses"),
    ],
)
def test_a_pool_is_told_with_the_reason_why_it_gives_nothing(row: PoolRow, words: str) -> None:
    assert inspect._told(row) == words


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("explain pod/x", "write KIND/NAME with a kind out of ipclaim, "),
        ("explain ipclaim", "write KIND/NAME with a kind out of ipclaim, "),
        ("pools --dialects metal4", "--dialects names metal4; choose from metal3,"),
        ("adopt", "adopt only looks, and wants to be asked so: berth adopt --check"),
        ("manifests nothing", "there is no part 'nothing'; choose from crds,"),
        ("manifests all --image=", "--image must name the image"),
        ("manifests all --replicas 0", "greater than or equal to 1"),
        ("up --listen 127.0.0.1:0", "--listen goes with --api-only"),
    ],
)
def test_what_is_written_wrong_is_told_before_anything_is_asked_for(command: str, sentence: str) -> None:
    result = CliRunner(env={"KUBECONFIG": "/none"}).invoke(app, command.split())
    assert result.exit_code != 0
    assert sentence in f"{result.output}{result.stderr}{result.exception}"


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["manifests", "kustomize", "--into", str(tmp_path / "file")])
    assert f"cannot write {tmp_path}/file/" in str(result.exception)


@pytest.mark.parametrize("word", ["ipclaim", "IPClaims", "svc", "vip", "ipreq", "services"])
def test_kinds_are_written_as_kubectl_takes_them(word: str) -> None:
    told = CliRunner(env={"KUBECONFIG": "/none"}).invoke(app, ["explain", f"{word}/x"])
    assert "Cannot read the kubeconfig /none" in str(told.exception)


def test_the_list_of_commands_is_readable_at_eighty_columns() -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["--help"]).output.partition("Commands:")[2]
    assert shown
    assert "..." not in shown


def test_every_command_and_every_option_says_what_it_is_for() -> None:
    assert list(_silent(typer.main.get_command(app), "berth")) == []


def _silent(command: Any, name: str) -> Iterator[str]:
    if not command.help:
        yield name
    yield from (f"{name} {option.opts[0]}" for option in command.params if not option.help)
    for word, inner in getattr(command, "commands", {}).items():
        yield from _silent(inner, f"{name} {word}")


def test_a_pool_of_ipv6_is_counted_for_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    """It has more addresses than 64 bits can count."""
    inspect._print_json([PoolRow("kubipam", "IPAMRange", "n/p", 2**80, 1, 2**80 - 1, "")])
    row = json.loads(capsys.readouterr().out)
    assert (row["total"], row["free"]) == (2**80, 2**80 - 1)
