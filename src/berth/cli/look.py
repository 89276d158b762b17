"""`berth pools`, `leases`, `explain` and `adopt`: looks at a live cluster; nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import orjson
import typer
from rich.console import Console

from berth.cli.tables import print_table
from berth.errors import UserError
from berth.kube import auth
from berth.kube.client import Client
from berth.views import PoolRow
from berth.views.every import every
from berth.views.explain import explain as explain_it

T = TypeVar("T")
BAR = 20
Kubeconfig = Annotated[
    Path | None, typer.Option(envvar="BERTH_KUBECONFIG", help="Else KUBECONFIG, else the in-cluster account.")
]
ApiUrl = Annotated[
    str,
    typer.Option(
        envvar=["BERTH_API_URL", "IPAM_API_URL"],
        help="The IPAM-API, which knows how full vitistack's zones are.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object a line.")]


def pools(kubeconfig: Kubeconfig = None, api_url: ApiUrl = "", json: Json = False) -> None:
    """Every dialect's pools in one table, with how full they are."""
    rows = _asked(kubeconfig, lambda client: _all(client, "pools", api_url))
    if json:
        _print_json(rows)
        return
    print_table(("dialect", "pool", "used", "total", "", "free", ""), map(_pool_line, rows))


def _pool_line(row: PoolRow) -> tuple[str, ...]:
    total, free = (_count(row.total), _count(row.free)) if row.total else ("", "")
    return row.dialect, row.name, _count(row.used), total, _bar(row), free, row.state


def _bar(row: PoolRow) -> str:
    """Never empty while something is used, and never full while something is free."""
    if not row.total:
        return ""
    full = min(max(round(row.used / row.total * BAR), 1 if row.used else 0), BAR if not row.free else BAR - 1)
    return "█" * full + "░" * (BAR - full)


def leases(kubeconfig: Kubeconfig = None, json: Json = False) -> None:
    """Every dialect's leases in one table: which address, who holds it, from which pool."""
    rows = _asked(kubeconfig, lambda client: _all(client, "leases"))
    if json:
        _print_json(rows)
        return
    print_table(("dialect", "address", "holder", "pool"), rows)


def explain(
    what: Annotated[str, typer.Argument(help="KIND/NAME, for example ipclaim/c1 or service/web.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "default",
    kubeconfig: Kubeconfig = None,
    api_url: ApiUrl = "",
) -> None:
    """Why a claim, request or Service waits, or got what it got."""
    found = _asked(kubeconfig, lambda client: explain_it(client, what, namespace, api_url))
    console = _console()
    console.print(f"{found.what} {found.answer}")
    for row in found.pools:
        counted = f"{_count(row.free)} of {_count(row.total)} free" if row.total else f"{row.used} used"
        console.print(f"  {row.name}: {', '.join(filter(None, (counted, row.state)))}")
    for event in found.events:
        console.print(f"  {event}")


def adopt(
    check: Annotated[
        bool, typer.Option("--check", help="Report only; this is all the command does.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    json: Json = False,
) -> None:
    """What Berth would take over from an existing installation, before anything is started.

    Exit code 1 if something could not be taken over.
    """
    if not check:
        raise UserError("adopt only looks, and wants to be asked so: berth adopt --check")
    rows = _asked(kubeconfig, lambda client: _all(client, "findings"))
    if json:
        _print_json(rows)
    else:
        for row in sorted(rows, key=lambda row: bool(row.problem)):  # what needs a person comes last
            typer.echo(f"{row.dialect}: {row.what}: {row.problem or 'taken over as it is'}")
        problems = sum(1 for row in rows if row.problem)
        typer.echo(f"{len(rows) - problems} objects would be taken over as they are, {problems} would not.")
    if any(row.problem for row in rows):
        raise typer.Exit(1)


async def _all(client: Client, question: str, api_url: str = "") -> list[Any]:
    return [row for views in every(api_url) for row in await getattr(views, question)(client)]


def _asked(kubeconfig: Path | None, question: Callable[[Client], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with Client(auth.load(kubeconfig)) as client:
            await client.check()
            return await question(client)

    return asyncio.run(ask())


def _print_json(rows: list[NamedTuple]) -> None:
    for row in rows:
        typer.echo(orjson.dumps(row._asdict(), default=str).decode())


def _count(number: int) -> str:
    return str(number) if number < 10**9 else f"{number:.1e}"


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
