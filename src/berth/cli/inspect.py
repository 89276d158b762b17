"""`berth pools`, `leases`, `explain` and `adopt`: looks at a live cluster; nothing is written.

Where a setting of the operator changes the answer, the flag and the environment name are the operator's.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from json import dumps
from typing import Annotated, Any, TypeVar

import typer

from berth.cli.options import OPERATORS, Told, dialect_names, operator_settings, taking
from berth.cli.tables import print_table, table_lines
from berth.dialects import ALL_DIALECTS, named
from berth.dialects.explain import explain as explain_it
from berth.dialects.explain import parse_target
from berth.dialects.view import PoolRow
from berth.errors import UserError
from berth.kube import auth
from berth.kube.client import Client
from berth.settings import Settings

T = TypeVar("T")
BAR, LEAST_BAR = 20, 5
ALL = ",".join(ALL_DIALECTS)
POOLS = ("DIALECT", "POOL", "USED", "TOTAL", "", "FREE", "")
Dialects = Annotated[
    str, typer.Option(envvar="BERTH_DIALECTS", help="Comma list of the dialects to look at.")
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", envvar="BERTH_NAMESPACE", help="Only this one; empty: all.")
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object a line.")]


@taking(*OPERATORS, look="pools")
def pools(*, dialects: Dialects = ALL, namespace: Namespace = "", told: Told, json: Json = False) -> None:
    """Every dialect's pools in one table, with how full they are.

    How full a zone of vitistack is only the IPAM-API knows: name it with --api-url. Without it, what this
    cluster holds is shown.

    \b
    Examples:
      berth pools
      berth pools --dialects metal3,kubipam -n team-a
      berth pools --api-url https://ipam.example.org/v2 --json
    """
    settings = operator_settings(told, dialects=dialect_names(dialects), namespace=namespace)
    rows: list[PoolRow] = _all("pools", settings)
    if json:
        _print_json(rows)
    else:
        _print_pools(rows)


def _print_pools(rows: list[PoolRow]) -> None:
    """On a narrow terminal the bar is what gets shorter, and goes; the words at the end may wrap."""
    bar = BAR
    if sys.stdout.isatty():
        lines = table_lines(POOLS[:-1], (_pool_line(row, 0)[:-1] for row in rows))
        bar = min(BAR, shutil.get_terminal_size().columns - max(map(len, lines)))
    print_table(POOLS, (_pool_line(row, bar if bar >= LEAST_BAR else 0) for row in rows))


def _pool_line(row: PoolRow, bar: int) -> tuple[str, ...]:
    total, free = (_count(row.total), _count(row.free)) if row.total else ("", "")
    name = f"{row.kind} {row.name}"
    return row.dialect, name, _count(row.used), total, _bar(row, bar), free, row.state


def _bar(row: PoolRow, width: int) -> str:
    """Never empty while something is used, and never full while something is free."""
    if not row.total or not width:
        return ""
    least, most = 1 if row.used else 0, width - 1 if row.free else width
    full = min(max(round(row.used / row.total * width), least), most)
    return "█" * full + "░" * (width - full)


@taking(*OPERATORS, look="leases")
def leases(*, dialects: Dialects = ALL, namespace: Namespace = "", told: Told, json: Json = False) -> None:
    """Every dialect's leases in one table: address, holder, pool.

    \b
    Examples:
      berth leases -n team-a
      berth leases --json | sort > before.jsonl
    """
    settings = operator_settings(told, dialects=dialect_names(dialects), namespace=namespace)
    rows = _all("leases", settings)
    if json:
        _print_json(rows)
    else:
        print_table(("DIALECT", "ADDRESS", "HOLDER", "POOL"), rows)


@taking(*OPERATORS, look="explain")
def explain(
    *,
    what: Annotated[str, typer.Argument(help="What it is about.", metavar="KIND/NAME")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where it is.")] = "default",
    told: Told,
) -> None:
    """What a claim, request or Service has, or why it waits.

    KIND is ipclaim, ipaddressclaim, ipamrequest, virtualip or service.

    \b
    Examples:
      berth explain ipclaim/c1 -n metal3
      berth explain service/web --vip-classes paas.org/vip
    """
    parse_target(what)  # what is written wrong is told before a cluster is asked for
    settings = operator_settings(told, dialects=ALL_DIALECTS)
    found = _asked(settings, lambda client: explain_it(client, what, namespace, settings))
    typer.echo(f"{found.what} {found.answer}")
    for row in found.pools:
        typer.echo(f"  {row.kind} {row.name}: {_told(row)}")
    for event in found.events:
        typer.echo(f"  {event}")


def _told(row: PoolRow) -> str:
    """How much of a pool is left, and why it would give nothing."""
    counted = f"{_count(row.free)} of {_count(row.total)} free" if row.total else ""
    used = f"{row.used} used" if row.used and not row.total else ""
    full = "full" if row.total and not row.free else ""
    return ", ".join(filter(None, (counted, used, full, row.state))) or "has no addresses"


@taking(*OPERATORS, look="adopt")
def adopt(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Report only; this is all the command does.")
    ] = False,
    dialects: Dialects = ALL,
    namespace: Namespace = "",
    told: Told,
    json: Json = False,
) -> None:
    """What Berth would take over, before anything is started.

    A line for each object of an existing installation: taken over as it is, or why not. Give it the flags the
    operator will have. Exit code 1 if something would not be taken over.

    \b
    Examples:
      berth adopt --check --dialects metal3
      berth adopt --check --dialects vip,vitistack --vip-classes paas.org/vip
    """
    if not check:
        raise UserError("adopt only looks, and wants to be asked so: berth adopt --check")
    settings = operator_settings(told, dialects=dialect_names(dialects), namespace=namespace)
    rows = _all("findings", settings)
    if json:
        _print_json(rows)
    else:
        for row in sorted(rows, key=lambda row: bool(row.problem)):  # what needs a person comes last
            typer.echo(f"{row.dialect}: {row.what}: {row.problem or 'taken over as it is'}")
        problems = sum(1 for row in rows if row.problem)
        typer.echo(f"{len(rows) - problems} objects would be taken over as they are, {problems} would not.")
    if any(row.problem for row in rows):
        raise typer.Exit(1)


def _all(question: str, settings: Settings) -> list[Any]:
    async def ask(client: Client) -> list[Any]:
        views = [dialect.view for dialect in named(settings.dialects)]
        return [row for view in views for row in await getattr(view, question)(client, settings)]

    return _asked(settings, ask)


def _asked(settings: Settings, question: Callable[[Client], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with Client(auth.load(settings.kubeconfig)) as client:
            await client.check()
            return await question(client)

    return asyncio.run(ask())


def _print_json(rows: list[Any]) -> None:
    for row in rows:
        # The standard library's: a pool of IPv6 has more addresses than orjson can count.
        typer.echo(dumps(row._asdict(), default=str, ensure_ascii=False, separators=(",", ":")))


def _count(number: int) -> str:
    return str(number) if number < 10**9 else f"{number:.1e}"
