"""`berth ledger netbox-diff` and `netbox-zones`: what NetBox and the ledger say of each other, and a zones
file out of NetBox.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import aiohttp
import typer

from berth.central.integrations.netbox import NetboxClient
from berth.central.integrations.netbox_diff import Differences, compare, repair
from berth.central.integrations.netbox_zones import our_uids, zones_text
from berth.central.settings import Netbox
from berth.cli import tables
from berth.cli.ledger_common import Json, Place, required, work
from berth.errors import UserError
from berth.net.host import masked

app = typer.Typer()
DIFFERS = 3
T = TypeVar("T")


Url = Annotated[str, typer.Option(envvar="BERTH_NETBOX_URL", help="Where NetBox is.")]
TokenFile = Annotated[Path | None, typer.Option(envvar="BERTH_NETBOX_TOKEN_FILE", help="Token for NetBox.")]


@app.command("netbox-diff")
def netbox_diff(
    context: typer.Context,
    netbox_url: Url = "",
    netbox_token_file: TokenFile = None,
    again: Annotated[bool, typer.Option("--repair", help="Push what is missing there once more.")] = False,
    json: Json = False,
) -> None:
    """Compare the ledger with NetBox. Exit code 3 if they differ. Nothing is ever deleted there."""
    required(netbox_url=netbox_url, netbox_token_file=str(netbox_token_file or ""))
    settings = Netbox(netbox_url, netbox_token_file)

    async def show(place: Place) -> None:
        async with place.engine() as engine:
            found = await _asked(settings, lambda client: compare(client, engine))
            if again and found.absent:
                await repair(engine, found.absent)
        _print(found, as_json=json)
        if found:
            raise typer.Exit(DIFFERS)

    work(context, show)


@app.command("netbox-zones")
def netbox_zones(
    context: typer.Context,
    netbox_url: Url = "",
    netbox_token_file: TokenFile = None,
    out: Annotated[Path | None, typer.Option(help="The zones file; absent: standard output.")] = None,
) -> None:
    """Write a zones file: NetBox's containers, without what others have in them. Then send the API a
    hangup, so that it reads the file.
    """
    required(netbox_url=netbox_url, netbox_token_file=str(netbox_token_file or ""))
    settings = Netbox(netbox_url, netbox_token_file)

    async def show(place: Place) -> None:
        async with place.engine() as engine:
            ours = await our_uids(engine)
        text = await _asked(settings, lambda client: zones_text(client, ours))
        if out is None:
            typer.echo(text, nl=False)
        else:
            _replace(out, text)

    work(context, show)


def _replace(file: Path, text: str) -> None:
    """In one step: an API that reads it meanwhile sees the old file or the new one."""
    part = file.with_name(file.name + ".part")
    try:
        part.write_text(text)
        part.replace(file)
    except OSError as cause:
        raise UserError(f"{file} cannot be written: {cause.strerror}.") from cause


async def _asked(settings: Netbox, job: Callable[[NetboxClient], Awaitable[T]]) -> T:
    timeout = aiohttp.ClientTimeout(total=60)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            return await job(NetboxClient(settings, session))
    except (aiohttp.ClientError, OSError, TimeoutError) as cause:
        raise UserError(f"NetBox gave no answer: {type(cause).__name__}.") from cause
    except (AttributeError, KeyError, TypeError, ValueError) as cause:
        raise UserError(f"NetBox's answer is not understood: {type(cause).__name__}: {cause}.") from cause


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
