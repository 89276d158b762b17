"""The command `berth`: one file per command group, put together here."""

from __future__ import annotations

import sys

import typer

from berth import __version__
from berth.cli import devcluster, ledger
from berth.cli.api import api
from berth.cli.bench import add_bench
from berth.cli.inspect import adopt, explain, leases, pools
from berth.cli.manifests import manifests
from berth.cli.operator import operator
from berth.cli.up import up
from berth.errors import BerthError

HELP = """
Berth: one address manager for Kubernetes.

\b
  berth up                 everything on this machine, to try it
  berth operator           controllers and webhooks in a cluster
  berth api                the central IPAM-API
  berth manifests all      the YAML to install
  berth adopt --check      what it would take over from what runs today
  berth explain KIND/NAME  what something has, or why it waits
"""

app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(up)
app.command()(operator)
app.command()(api)
app.command()(manifests)
for look in (pools, leases, explain, adopt):
    app.command()(look)
app.add_typer(ledger.app, name="ledger")
app.add_typer(devcluster.app, name="devcluster")
add_bench(app)


def _version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print it and exit."
    ),
) -> None:
    """Nothing is done here; see the commands."""


def main() -> None:
    try:
        app()
    except BerthError as error:
        typer.echo(f"berth: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
