"""`berth ledger`, the commands that carry the whole ledger out and in: backup, export, import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from berth.cli.ledger_common import Place, now_of, required, work
from berth.errors import UserError
from berth.store import importing, mongo, queries, snapshot
from berth.store.pepper import fitting_pepper

app = typer.Typer()


def _backup(
    context: typer.Context, out: Annotated[str, typer.Option(help="File; .gz packs it.")] = ""
) -> None:
    """Write everything, history and seals of secrets included, while the API runs. Keep the pepper file
    too.
    """
    required(out=out)

    async def keep(place: Place) -> None:
        async with place.engine() as engine:
            written = await snapshot.write(engine, Path(out), whole=True)
        typer.echo(f"Backed up {written.addresses} addresses and {written.events} events to {out}")

    work(context, keep)


app.command("backup")(_backup)
app.command("mongo-backup", hidden=True)(_backup)


@app.command()
def restore(
    context: typer.Context,
    source: Annotated[str, typer.Option("--from", help="A backup.")] = "",
    allow_unproven: Annotated[
        bool,
        typer.Option(
            "--allow-unproven",
            help="Although no last line proves that it is whole: a backup of an older version.",
        ),
    ] = False,
) -> None:
    """Fill an empty database from a backup: with all of it, or with nothing."""
    required(**{"from": source})

    async def fill(place: Place) -> None:
        async with place.engine(create=True) as engine:
            wanted = snapshot.Wanted(backup=True, end=not allow_unproven)
            done = await importing.restore(engine, snapshot.read(Path(source), wanted))
        typer.echo(f"Restored {done.added} addresses and {done.events} events")

    work(context, fill)


@app.command("export")
def export_lines(
    context: typer.Context, out: Annotated[str, typer.Option(help="File; .gz packs it.")] = ""
) -> None:
    """Write addresses and services as JSON lines, without anything of the secrets."""
    required(out=out)

    async def keep(place: Place) -> None:
        async with place.engine() as engine:
            written = await snapshot.write(engine, Path(out), whole=False)
        typer.echo(f"Exported {written.addresses} addresses to {out}")

    work(context, keep)


@app.command("import")
def import_lines(
    context: typer.Context, source: Annotated[str, typer.Argument(help="An export or a backup.")]
) -> None:
    """Bring JSON lines in; what is stored already stays as it is. Exit code 1 if something was another's."""

    async def fill(place: Place) -> None:
        async with place.engine(create=True) as engine:
            sealed_with = {one.address.secret_hash.key_id for one in _records(Path(source))} - {""}
            await place.refuse_strange(engine, sealed_with)
            done = await importing.import_records(engine, _records(Path(source)))
        _tell(done)

    work(context, fill)


@app.command("import-mongo")
def import_mongo(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(help="A mongodump or its archive, or JSON lines of mongoexport; .gz too.")
    ],
    key_file: Annotated[
        Path | None, typer.Option(help="Upstream's encryption file: JSON with enc_key and enc_iv.")
    ] = None,
) -> None:
    """Take over upstream's records; can be run again without harm. Exit code 1 if some were left out."""
    required(key_file=str(key_file or ""))
    assert key_file is not None

    async def fill(place: Place) -> None:
        key = mongo.load_key(key_file)
        async with place.engine(create=True) as engine:
            pepper = await fitting_pepper(engine, place.pepper_file)
            dump = mongo.Dump(Path(source), key, pepper, await now_of(engine))
            done = await importing.import_records(engine, dump.records())
        _tell(done, dump.left_out)

    work(context, fill)


def _records(source: Path) -> Iterator[queries.LedgerRecord]:
    return (one for one in snapshot.read(source) if isinstance(one, queries.LedgerRecord))


def _tell(done: importing.Imported, left_out: Sequence[str] = ()) -> None:
    typer.echo(f"Imported {done.added} addresses, {done.present} were there already")
    faults = []
    if done.conflicts:
        shown = ", ".join(done.conflicts[:10])
        faults.append(f"{len(done.conflicts)} addresses are another's and were left alone: {shown}")
    if left_out:
        faults.append(f"{len(left_out)} records are no addresses of ours: {', '.join(left_out[:10])}")
    if faults:
        raise UserError("; ".join(faults))
