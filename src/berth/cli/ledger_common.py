"""What the commands of `berth ledger` share: which store they work on, their flags, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from berth.errors import BerthError, UserError
from berth.net.host import canonical
from berth.secret import Pepper
from berth.store import queries
from berth.store.admin import NOT_FOUND
from berth.store.engine import Engine, connect, sqlite_path
from berth.store.migrate import migrate
from berth.store.pepper import fitting_pepper

Address = Annotated[str, typer.Option(help="With or without mask, any spelling.")]
Zone = Annotated[str, typer.Option(help="The zone it is registered in.")]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]


@dataclass(frozen=True, slots=True)
class Place:
    """Which store the commands work on."""

    database: str
    pepper_file: Path

    async def pepper(self, engine: Engine) -> Pepper:
        """UserError if it is missing, or another ledger's."""
        return await fitting_pepper(engine, self.pepper_file, create=False)

    async def refuse_strange(self, engine: Engine, sealed_with: Collection[str]) -> None:
        """Seals that no key of ours opens would be nobody's, and no server would start on them. Without a
        pepper file, as in a ledger that only begins, there is nothing to compare.
        """
        if sealed_with and self.pepper_file.exists():
            unknown = sorted(set(sealed_with) - set((await self.pepper(engine)).key_ids))
            if unknown:
                raise UserError(
                    f"the file has secrets sealed with the key {unknown[0]!r}, which the pepper file "
                    f"{self.pepper_file} does not have; add that key's line to it, or import an export."
                )

    @asynccontextmanager
    async def engine(self, *, create: bool = False) -> AsyncIterator[Engine]:
        if self.database.startswith("sqlite") and not create and not sqlite_path(self.database).exists():
            raise UserError(f"there is no database {sqlite_path(self.database)}; name it with --database.")
        engine = await connect(self.database)
        try:
            await migrate(engine)
            yield engine
        finally:
            await engine.close()


def work(context: typer.Context, job: Callable[[Place], Awaitable[None]]) -> None:
    """Run a command; what goes wrong is one line on standard error and exit code 1."""
    try:
        asyncio.run(_awaited(job, context.obj()))
    except BerthError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


async def _awaited(job: Callable[[Place], Awaitable[None]], place: Place) -> None:
    await job(place)


def required(**flags: str | None) -> None:
    missing = [f'"{name.replace("_", "-")}"' for name, value in flags.items() if not value]
    if missing:
        typer.echo(f"Error: required flag(s) {', '.join(missing)} not set", err=True)
        raise typer.Exit(1)


def host(text: str) -> str:
    try:
        return canonical(text)[1]
    except ValueError:
        raise UserError(f"invalid ip prefix: {text}") from None


async def found(engine: Engine, address: str, zone: str) -> queries.LedgerRecord:
    record = await queries.record(engine, host(address), zone)
    if record is None:
        raise UserError(f"failed to find addresses: {NOT_FOUND}")
    return record


async def now_of(engine: Engine) -> int:
    async with engine.snapshot() as tx:
        return await tx.now()
