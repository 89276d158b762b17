"""`berth bench`: the benchmarks, one JSON object a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import orjson
import typer

from bench import api, control, engine, kubipam, metal3, vip, vitistack

HELP = """
The benchmarks, one JSON object a line.

Its keys: bench, n, per_s, and where they apply ceiling_per_s, ratio, p50_ms, p99_ms, cpu_s_per_1000, rss_mb.
Those on a cluster start their own control plane.

\b
Examples:
  berth bench engine
  berth bench metal3 --sizes 200,1000,10000
  berth bench all
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
Sizes = Annotated[str, typer.Option(help="How many claims, one run for each.")]


def _print(results: Iterator[dict[str, Any]]) -> None:
    for result in results:
        typer.echo(orjson.dumps(result).decode())


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a comma list of numbers, like 200,1000") from None


@app.command("engine")
def engine_(
    every: Annotated[bool, typer.Option("--every", help="All strategies, and blocks: ten minutes.")] = False,
) -> None:
    """Decisions a second, for pools of any size and fill."""
    _print(engine.run(cases=engine.EVERY_CASE if every else engine.CASES))


@app.command("control")
def control_(objects: Annotated[int, typer.Option(help="Objects that exist at start.")] = 10_000) -> None:
    """Start-up with many objects, and a pass over a settled world."""
    _print(control.run(objects))


@app.command("metal3")
def metal3_(sizes: Sizes = "200,1000") -> None:
    """IPClaims bound a second, beside the ceiling for the same writes."""
    _print(metal3.run(_sizes(sizes)))


@app.command()
def capi(sizes: Sizes = "200,1000") -> None:
    """Cluster API claims bound a second, beside the ceiling for the same writes."""
    _print(metal3.run_capi(_sizes(sizes)))


@app.command("kubipam")
def kubipam_(sizes: Sizes = "200,1000") -> None:
    """IPAMRequests served a second, beside the ceiling for the same writes."""
    _print(kubipam.run(_sizes(sizes)))


@app.command("api")
def api_(
    requests: Annotated[int, typer.Option(help="Requests of each kind.")] = 20_000,
    held: Annotated[str, typer.Option(help="Held addresses, one run for each.")] = "1000,1000000",
) -> None:
    """Registrations, updates and releases a second on both stores, beside a plain INSERT and COMMIT."""
    _print(api.run(_sizes(held), requests))


@app.command("vip")
def vip_(sizes: Sizes = "200,1000,4000") -> None:
    """LoadBalancer Services served a second from a /16, beside the ceiling for the same writes."""
    _print(vip.run(_sizes(sizes)))


@app.command("vitistack")
def vitistack_(sizes: Sizes = "200,1000") -> None:
    """Services admitted a second with both webhooks, beside the same API server without."""
    _print(vitistack.run(_sizes(sizes)))


@app.command()
def ceiling(
    n: Annotated[int, typer.Option(help="Claims.")] = 1000,
    kind: Annotated[str, typer.Option(help="metal3 or capi.")] = "metal3",
) -> None:
    """The writes of N claims with no operator: what the API server can take on this machine."""
    _print(metal3.run_ceiling(kind, n))


@app.command("all")
def all_() -> None:
    """Every benchmark in turn."""
    every: tuple[Callable[[], Iterator[dict[str, Any]]], ...] = (
        engine.run,
        control.run,
        metal3.run,
        metal3.run_capi,
        kubipam.run,
        vitistack.run,
        vip.run,
        api.run,
    )
    for run in every:
        _print(run())
