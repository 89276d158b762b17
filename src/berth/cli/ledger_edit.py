"""`berth ledger`, the commands that release, undo, replace a secret or accept the clock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from berth.cli import tables
from berth.cli.ledger_common import Address, Place, Zone, found, host, required, work
from berth.errors import UserError, file_fault
from berth.leasing.holders import Identity
from berth.net.host import masked
from berth.secret import Secret
from berth.store import kv
from berth.store.admin import NOT_FOUND, replace_secret
from berth.store.clock_guard import accepted
from berth.store.clusters import Order, release_cluster, release_entry, undo
from berth.store.operators import silent
from berth.store.sweep import CLOCK

app = typer.Typer()
MOST_HOURS = 30 * 24


@app.command("delete-service")
def delete_service(
    context: typer.Context,
    address: Address = "",
    zone: Zone = "",
    secret: Annotated[str, typer.Option(help="Checked where it is given.")] = "",
    service_name: Annotated[str, typer.Option(help="As it was registered.")] = "",
    namespace_id: Annotated[str, typer.Option(help="UID of its namespace.")] = "",
    cluster_id: Annotated[str, typer.Option(help="UID of its cluster's kube-system.")] = "",
) -> None:
    """End one service's entry now; the others on the address are not touched."""
    required(
        address=address,
        zone=zone,
        service_name=service_name,
        namespace_id=namespace_id,
        cluster_id=cluster_id,
    )
    who = Identity(service_name, namespace_id, cluster_id)

    async def end(place: Place) -> None:
        async with place.engine() as engine:
            record = await found(engine, address, zone)
            if secret and not (await place.pepper(engine)).verifies(
                Secret(secret), record.address.secret_hash
            ):
                raise UserError(NOT_FOUND)
            if not await release_entry(engine, record.address.address, who):
                raise UserError("service does not exist for this address")
        shown = masked(record.address.address)
        typer.echo(
            f"Expiration set for service '{service_name}' cluster id '{cluster_id}' "
            f"namespace id '{namespace_id}' on address '{shown}'"
        )

    work(context, end)


@app.command("delete-cluster")
def delete_cluster(
    context: typer.Context,
    cluster: Annotated[str, typer.Option(help="Cluster id.")] = "",
    include_denied: Annotated[
        bool, typer.Option("--include-denied", help="Also entries that deny external clean-up.")
    ] = False,
) -> None:
    """End all entries of a cluster now."""
    required(cluster=cluster)

    async def end(place: Place) -> None:
        async with place.engine() as engine:
            order = Order(cluster, "cli", at_once=True, include_denied=include_denied)
            done = await release_cluster(engine, order)
        if not done.found:
            raise UserError(f"no address found for cluster_id={cluster}")
        for row in done.skipped:
            name = row.entry.identity.service_name
            typer.echo(f"Skipped service '{name}' on address '{masked(row.address)}': it denies clean-up")
        typer.echo(f"Expiration set for addresses with cluster ID: {cluster}")

    work(context, end)


@app.command("release-silent")
def release_silent(
    context: typer.Context,
    cluster: Annotated[str, typer.Option(help="Cluster id, as `operators --silent` shows it.")] = "",
    grace_hours: Annotated[
        float, typer.Option(help="Time for an undo: nothing is freed earlier, whatever its retention.")
    ] = 24.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Release the addresses of a cluster that fell silent; each is kept for its retention, and those that
    deny external clean-up stay. If the cluster is heard again before they are freed, it keeps what it lists.
    """
    required(cluster=cluster)

    async def end(place: Place) -> None:
        if not 0 <= grace_hours <= MOST_HOURS:
            raise UserError(f"--grace-hours must be a number from 0 to {MOST_HOURS}.")
        async with place.engine() as engine:
            one = next((one for one in (await silent(engine))[1] if one.cluster_id == cluster), None)
            if one is None:
                raise UserError(f"{cluster} is not among the silent clusters; see `operators --silent`.")
            last = tables.time_text(one.seen_at)
            typer.echo(f"Cluster {cluster} was last heard at {last} and has {one.entries} entries in use.")
            if not yes:
                typer.confirm("Release them?", abort=True)
            order = Order(cluster, "silent", grace_ms=round(grace_hours * 3_600_000))
            done = await release_cluster(engine, order)
        if done.speaking:
            raise UserError(f"{cluster} is heard again; nothing was released.")
        for row in done.skipped:
            name = row.entry.identity.service_name
            typer.echo(f"Skipped service '{name}' on address '{masked(row.address)}': it denies clean-up")
        typer.echo(f"Released: {done.expired} entries expire; until then `undo --cluster {cluster}` helps.")

    work(context, end)


@app.command("undo")
def undo_release(
    context: typer.Context,
    cluster: Annotated[str, typer.Option(help="Everything marked of this cluster.")] = "",
    address: Address = "",
) -> None:
    """Take back a release by a cluster token, ROR or a command that the sweep has not reached yet. What a
    service gave back itself stays so.
    """
    if bool(cluster) == bool(address):
        required(**{"cluster or address": ""})

    async def back(place: Place) -> None:
        column, value = ("cluster_id", cluster) if cluster else ("address", host(address))
        async with place.engine() as engine:
            count = await undo(engine, column, value)
        if not count:
            raise UserError("nothing to undo.")
        typer.echo(f"Undone: {count} entries are as they were before their release.")

    work(context, back)


@app.command("replace-secret")
def replace(
    context: typer.Context,
    address: Address = "",
    zone: Zone = "",
    new: Annotated[str, typer.Option(help="Better: --new-file, which no process list shows.")] = "",
    new_file: Annotated[str, typer.Option(help="A file, or - for standard input.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Although several services use it.")] = False,
) -> None:
    """Give an address a new secret, when the old one is lost."""
    required(address=address, zone=zone, new=new or new_file)

    async def change(place: Place) -> None:
        secret = new or _secret_in(new_file)
        if not 8 <= len(secret) <= 64:
            raise UserError("the secret must have 8 to 64 characters.")
        bare = host(address)
        async with place.engine() as engine:
            pepper = await place.pepper(engine)
            await replace_secret(engine, pepper, (bare, zone), Secret(secret), force=force)
        typer.echo(f"Secret updated for address '{masked(bare)}' in zone '{zone}'")

    work(context, change)


def _secret_in(name: str) -> str:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
    except (OSError, UnicodeDecodeError) as cause:
        raise UserError(f"{name} cannot be read: {file_fault(cause)}.") from cause
    return text.removesuffix("\n")


@app.command("accept-clock")
def accept_clock(context: typer.Context) -> None:
    """Accept the database's time after a jump, so that the sweep goes on."""

    async def accept(place: Place) -> None:
        async with place.engine() as engine, engine.transaction(slow=True) as tx:
            now = await tx.now()
            await kv.set_mark(tx, CLOCK, accepted(now))
        typer.echo(f"Accepted: it is {tables.time_text(now)}")

    work(context, accept)
