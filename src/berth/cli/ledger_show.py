"""`berth ledger`, the commands that look: they change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from berth import __version__
from berth.central.zones import load_zones
from berth.cli import tables
from berth.cli.ledger_common import Address, Json, Place, Zone, found, host, now_of, required, work
from berth.errors import UserError
from berth.net.host import masked
from berth.secret import Pepper
from berth.store import operators, queries
from berth.store.ledger import Ledger
from berth.store.requests import zone_of
from berth.store.settlement import LedgerRules

app = typer.Typer()


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"Vitistack IPAM CLI version {__version__} ")


@app.command("show-services")
def show_services(
    context: typer.Context,
    address: Address = "",
    zone: Zone = "",
    format: Annotated[str, typer.Option(help="json or text.")] = "text",
) -> None:
    """Show one address and the services on it."""
    required(address=address, zone=zone)

    async def show(place: Place) -> None:
        async with place.engine() as engine:
            record = await found(engine, address, zone)
        if format == "json":
            tables.print_json(tables.record_json(record))
        else:
            typer.echo(tables.record_text(record))

    work(context, show)


@app.command("show-secret")
def show_secret(context: typer.Context, address: Address = "", zone: Zone = "") -> None:
    """Say why a secret cannot be shown: only a keyed hash of it is kept. Exit code 3."""
    required(address=address, zone=zone)

    async def show(place: Place) -> None:
        async with place.engine() as engine:
            record = await found(engine, address, zone)
        shown = masked(record.address.address)
        typer.echo(
            f"Secret for address '{shown}' in zone '{zone}' is kept as a keyed hash and cannot be shown; "
            "use replace-secret.",
            err=True,
        )
        raise typer.Exit(3)

    work(context, show)


@app.command("list")
def list_addresses(
    context: typer.Context,
    zone: Zone = "",
    state: Annotated[str, typer.Option(help="in use, retained or lapsed.")] = "",
    json: Json = False,
) -> None:
    """List addresses by zone and state."""

    async def show(place: Place) -> None:
        async with place.engine() as engine, engine.snapshot() as tx:
            now = await tx.now()
            chosen = [
                record
                async for record in queries.all_records(tx, lambda pool: not zone or zone_of(pool) == zone)
                if not state or record.state(now) == state
            ]
        tables.print_records(chosen, now, as_json=json)

    work(context, show)


@app.command()
def find(
    context: typer.Context,
    address: Address = "",
    cluster: Annotated[str, typer.Option(help="Cluster id.")] = "",
    service: Annotated[str, typer.Option(help="Service name.")] = "",
    json: Json = False,
) -> None:
    """Find addresses by address, cluster or service. Exit code 1 if there are none."""
    if sum(map(bool, (address, cluster, service))) != 1:
        required(**{"address, cluster or service": ""})

    async def show(place: Place) -> None:
        async with place.engine() as engine:
            now = await now_of(engine)
            if address:
                one = await queries.record(engine, host(address))
                records = [one] if one else []
            elif cluster:
                records = await queries.records_of(engine, "cluster_id", cluster)
            else:
                records = await queries.records_of(engine, "service_name", service)
        if not records:
            raise UserError("nothing found.")
        tables.print_records(records, now, as_json=json)

    work(context, show)


@app.command()
def zones(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--zones", envvar="BERTH_ZONES", help="As given to `berth api`.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the zones and how full they are."""

    async def show(place: Place) -> None:
        configured = load_zones(file)
        async with place.engine() as engine:
            ledger = Ledger(engine, LedgerRules(Pepper({"none": b""})))
            await ledger.look(configured.pools)
            tables.print_usage(ledger.usage(), as_json=json)

    work(context, show)


@app.command("operators")
def show_operators(
    context: typer.Context,
    silent: Annotated[
        bool,
        typer.Option(
            "--silent", help="Clusters with addresses for which nobody speaks any more, oldest first."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show which operators speak for which cluster. Two that live freeze it. Exit code 3 if one is frozen."""

    async def show(place: Place) -> None:
        async with place.engine() as engine:
            if silent:
                now, clusters = await operators.silent(engine)
                tables.print_silent(clusters, now, as_json=json)
                return
            now, heard = await operators.operators(engine)
            frozen = await operators.all_frozen(engine)
        tables.print_operators(heard, now, as_json=json)
        if frozen:
            raise typer.Exit(3)

    work(context, show)


@app.command()
def history(
    context: typer.Context, address: Annotated[str, typer.Argument(help="Any spelling.")], json: Json = False
) -> None:
    """Show who had an address when."""

    async def show(place: Place) -> None:
        async with place.engine() as engine:
            events = await queries.history(engine, host(address))
        if not events:
            raise UserError(f"no history of {address}.")
        tables.print_history(events, as_json=json)

    work(context, show)
