"""`berth ledger netbox-diff`: what NetBox and the ledger say of each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import aiohttp
import typer

from berth.central.netbox import NetboxClient
from berth.central.netbox_diff import Differences, compare, repair
from berth.central.settings import Netbox
from berth.cli import tables
from berth.cli.ledger_place import Json, Place, required, work
from berth.errors import UserError
from berth.store.engine import Engine
from berth.store.hosts import masked

app = typer.Typer()
DIFFERS = 3


@app.command("netbox-diff")
def netbox_diff(
    context: typer.Context,
    netbox_url: Annotated[str, typer.Option(envvar="BERTH_NETBOX_URL")] = "",
    netbox_token_file: Annotated[Path | None, typer.Option(envvar="BERTH_NETBOX_TOKEN_FILE")] = None,
    again: Annotated[bool, typer.Option("--repair", help="Push what is missing there once more.")] = False,
    json: Json = False,
) -> None:
    """Compare the ledger with NetBox. Exit code 3 if they differ. Nothing is ever deleted there."""
    required(netbox_url=netbox_url, netbox_token_file=str(netbox_token_file or ""))
    settings = Netbox(netbox_url, netbox_token_file)

    async def show(place: Place) -> None:
        async with place.engine() as engine:
            found = await _compared(settings, engine)
            if again and found.absent:
                await repair(engine, found.absent)
        _print(found, as_json=json)
        if found:
            raise typer.Exit(DIFFERS)

    work(context, show)


async def _compared(settings: Netbox, engine: Engine) -> Differences:
    timeout = aiohttp.ClientTimeout(total=60)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            return await compare(NetboxClient(settings, session), engine)
    except (aiohttp.ClientError, OSError, TimeoutError) as cause:
        raise UserError(f"NetBox gave no answer: {type(cause).__name__}.") from cause


def _print(found: Differences, *, as_json: bool) -> None:
    rows = [
        *((masked(row.address), "absent", "held, not in NetBox") for row in found.absent),
        *((masked(row.address), "foreign", "in NetBox under another uuid") for row in found.foreign),
        *((masked(address), "unknown", "in NetBox, not held") for address in found.unknown),
    ]
    if as_json:
        tables.print_json([{"address": address, "difference": word} for address, word, _ in rows])
    else:
        tables.print_table(("ADDRESS", "DIFFERENCE", "MEANING"), rows)
