"""`berth api`: the central IPAM-API."""

from __future__ import annotations

import typer

from berth import log
from berth.central.serve import serve
from berth.central.settings import ApiSettings
from berth.cli.options import Told, taking
from berth.cli.process import run_until_stopped
from berth.settings import filled

EXAMPLES = """
Run the IPAM-API: one ledger of addresses for many clusters.

\b
Examples:
  berth api                                         SQLite in ./berth.db, port 3000
  berth api --listen 127.0.0.1:0 --zones zones.yaml
  berth api --database postgresql://berth@db/berth  several replicas
"""


@taking(ApiSettings)
def api(told: Told) -> None:
    log.configure(told["log_level"])
    run_until_stopped(serve(filled(ApiSettings, told), _announce))


api.__doc__ = EXAMPLES


def _announce(url: str) -> None:
    """On standard output, so that a script can read which port was free."""
    typer.echo(f"listening on {url}")
