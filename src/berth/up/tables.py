"""What was asked and what was given, a table per dialect, and the commands to try next."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from berth.dialects import DIALECTS
from berth.dialects.examples import ExampleRow
from berth.kube.client import Client
from berth.settings import exported
from berth.up.examples import told

if TYPE_CHECKING:
    from berth.up.stage import Stage

# Kinds that `berth explain` knows.
EXPLAINED = {kinds[0].kind for dialect in DIALECTS for kinds in dialect.view.kinds.values()}


async def show(console: Console, client: Client, stage: Stage) -> None:
    shown: list[ExampleRow] = []
    for table in (table for dialect in DIALECTS for table in dialect.examples.tables):
        rows = await table.rows(client)
        if rows:
            console.print(_table(table.title, rows))
        shown += rows
    for sentence in stage.left_out:
        console.print(f"Left out: {sentence}", highlight=False, markup=False, soft_wrap=True)
    _commands(console, *_to_try(stage, shown))
    console.print(
        f"The operator's log: {stage.log_file}. Ctrl-C stops everything and leaves nothing behind.",
        highlight=False,
        soft_wrap=True,
    )


def _table(title: str, rows: Sequence[ExampleRow]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("asked", "from", "given"):
        table.add_column(column, overflow="fold")  # a name or an address is never cut
    for row in rows:
        table.add_row(f"{row.kind} {row.name}", row.source, row.given or "nothing yet")
    return table


def _to_try(stage: Stage, rows: Sequence[ExampleRow]) -> list[str]:
    programs = f"{Path(sys.executable).parent}:{stage.kubectl.parent}"
    variables = {name: value for part in told(f"{stage.api}/v2") for name, value in exported(part).items()}
    exports = " ".join(f"{name}={value}" for name, value in variables.items())
    plurals = dict.fromkeys(plural for dialect in DIALECTS for plural in dialect.examples.plurals)
    return [
        f"export KUBECONFIG={stage.kubeconfig} {exports} PATH=$PATH:{programs}",
        "berth pools && berth leases",
        _explain(rows),
        f"kubectl get {','.join(plurals)} -A",
        f"curl -s {stage.api}/metrics | grep berth_",
    ]


def _explain(rows: Sequence[ExampleRow]) -> str:
    """About the last one that the command knows: the most is to be said about it."""
    for row in reversed(rows):
        namespace, _, name = row.name.partition("/")
        if row.kind in EXPLAINED:
            return f"berth explain {row.kind.lower()}/{name} -n {namespace}"
    return "berth explain --help"


def show_api(console: Console, url: str) -> None:
    console.print(f"The IPAM-API listens on {url}; its description is at {url}/swagger/index.html")
    body = (
        '{"secret":"a-secret-of-yours","zone":"inet","ip_family":"ipv4",'
        '"service":{"service_name":"web","namespace_id":"ns-1","cluster_id":"cluster-1"}}'
    )
    _commands(console, f"curl -s {url}/v2/address -d '{body}'", f"curl -s {url}/readyz")
    console.print("Ctrl-C stops it.")


def _commands(console: Console, *commands: str) -> None:
    console.print("Try:")
    for command in commands:
        console.print(f"  {command}", soft_wrap=True, highlight=False, markup=False)
