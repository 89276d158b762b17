"""`berth ledger`: the central store's commands, directly on the database; safe while the API runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from berth import log
from berth.central.serve import pepper_path
from berth.cli import ledger_backup, ledger_edit, ledger_netbox, ledger_show
from berth.cli.ledger_common import Place

HELP = """
The central store's commands: look, release, repair, back up. They work on the database itself and are safe
while the API runs. Exit code 0: done; 1: not done, with `Error: …` on standard error.

\b
  berth ledger --database sqlite:///berth.db list --zone inet
  berth ledger find --cluster 0f3c7805-6b1d-4387-b8c4-b8c5d0e9b878
  berth ledger history 83.118.168.10
  berth ledger backup --out berth.jsonl.gz
"""
HINT = "Use `berth ledger --help` to see available commands."

app = typer.Typer(help=HELP, rich_markup_mode=None, pretty_exceptions_enable=False)
for part in (ledger_show, ledger_edit, ledger_backup, ledger_netbox):
    app.registered_commands += part.app.registered_commands


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    database: Annotated[
        str, typer.Option(envvar="BERTH_DATABASE", help="sqlite:///FILE or postgresql://…")
    ] = "sqlite:///berth.db",
    pepper_file: Annotated[
        Path | None, typer.Option(envvar="BERTH_PEPPER_FILE", help="As given to `berth api`.")
    ] = None,
) -> None:
    log.configure("error")
    if context.invoked_subcommand is None:
        typer.echo(HINT)
        return
    context.obj = lambda: Place(database, pepper_path(database, pepper_file))
