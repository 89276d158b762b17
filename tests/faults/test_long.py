"""A long run counts what its rows say they tried, and shows its table even if it is cut short."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.auditor import Lost
from tests.faults.beside import BESIDE, ROOT, tried_in, words
from tests.faults.row import Row

REPORT = """<testsuites><testsuite>
<testcase name="one"><properties><property name="tried" value="12"/></properties></testcase>
<testcase name="two"><properties>
<property name="tried" value="3"/><property name="tried" value="4"/><property name="else" value="99"/>
</properties></testcase><testcase name="silent"/></testsuite></testsuites>"""


def test_what_the_tests_said_they_tried_is_added_up(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    assert tried_in(report) == 0
    report.write_text(REPORT)
    assert tried_in(report) == 19


def chosen(row: Row) -> list[ast.AsyncFunctionDef]:
    """The tests that pytest picks for it."""
    path, _, word = words(row.beside)
    tree = ast.parse((ROOT / path).read_text())
    tests = [
        one for one in tree.body if isinstance(one, ast.AsyncFunctionDef) and one.name.startswith("test_")
    ]
    named = {
        test.name: f"{path} {test.name} {' '.join(map(ast.unparse, test.decorator_list))}" for test in tests
    }
    return [test for test in tests if word.lower() in named[test.name].lower()]


@pytest.mark.parametrize("row", BESIDE, ids=[row.id.replace(" ", "-") for row in BESIDE])
def test_every_row_beside_says_how_often_it_tried(row: Row) -> None:
    tests = chosen(row)
    assert tests
    for test in tests:
        assert "tried" in [one.arg for one in test.args.args], f"{test.name} does not say what it tried"


def test_what_is_nobodys_for_long_is_lost() -> None:
    lost = Lost(60.0)
    assert lost.note(["I2: x", "I2: y"], 0.0) == []
    assert lost.note(["I2: y"], 50.0) == []
    assert lost.note(["I2: x", "I2: y"], 61.0) == ["I2: y, for 60 s"]


@pytest.mark.faults
def test_a_run_that_is_cut_short_shows_its_table() -> None:
    command = [sys.executable, "-m", "tests.faults.long", "--rows", "T25 api", "--seed", "7"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "seed 7, 120 minutes, 1 rows\n"
        running.send_signal(signal.SIGTERM)
        said = running.stdout.read()
    assert "| row | fault | tried | violations | seconds |" in said
    assert "repeat with --seed 7" in said
    assert running.returncode == 0
