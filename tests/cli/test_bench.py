"""The benchmarks are run from a checkout; where there is none, the command says so in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from berth.cli.bench import add_bench
from berth.cli.main import app
from berth.errors import UserError


def test_a_checkout_has_every_benchmark() -> None:
    told = CliRunner().invoke(app, ["bench", "--help"]).output
    assert all(f"\n  {name} " in told for name in ("engine", "control", "capi", "api", "ceiling", "all"))


@pytest.mark.parametrize("arguments", [[], ["all"], ["metal3", "--sizes", "200,1000"]])
def test_the_wheel_has_none_and_says_where_they_are(tmp_path: Path, arguments: list[str]) -> None:
    installed = typer.Typer()
    add_bench(installed, tmp_path)
    installed.command("other")(lambda: None)
    result = CliRunner().invoke(installed, ["bench", *arguments])
    assert isinstance(result.exception, UserError)
    assert "benchmarks are run from a checkout" in str(result.exception)
