"""`berth up`: try everything on one machine."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from berth.cli.process import run_until_stopped
from berth.errors import UserError
from berth.up.stage import up as stage_up
from berth.up.stage import up_api_only

EXAMPLES = """
Try everything on this machine, with nothing installed.

A real control plane, the IPAM-API, the operator with all dialects, and the examples. The first time the
control plane is built or fetched; later starts take seconds.

\b
Examples:
  berth up
  berth up --api-only
  berth up --api-only --listen 127.0.0.1:0
"""


def up(
    api_only: Annotated[bool, typer.Option("--api-only", help="Just the IPAM-API, in seconds.")] = False,
    listen: Annotated[
        str,
        typer.Option(help="With --api-only: where; port 0 is any free one.", show_default="127.0.0.1:3000"),
    ] = "",
) -> None:
    if listen and not api_only:
        raise UserError("--listen goes with --api-only: without it every port is any free one.")
    console = Console(emoji=False)  # an IPv6 address has colons
    run_until_stopped(up_api_only(console, listen or "127.0.0.1:3000") if api_only else stage_up(console))


up.__doc__ = EXAMPLES
