"""`berth bench`: the benchmarks live beside the package, in a checkout; the wheel has none."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from berth.errors import UserError

CHECKOUT = Path(__file__).parents[3]


def add_bench(app: typer.Typer, checkout: Path = CHECKOUT) -> None:
    if not (checkout / "bench" / "commands.py").is_file():
        taken_as_they_are = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command("bench", context_settings=taken_as_they_are)(not_here)
        return
    sys.path.append(str(checkout))
    from bench.commands import app as benchmarks

    app.add_typer(benchmarks, name="bench")


def not_here(arguments: list[str] = typer.Argument(None, hidden=True)) -> None:  # noqa: B008
    """The benchmarks, which are run from a checkout of the sources."""
    raise UserError("benchmarks are run from a checkout of the sources, where `berth bench` has them.")
