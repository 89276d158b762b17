"""Brings a database to the newest schema: applies schema/<engine>/NNNN_*.sql in order, each once, each in
one transaction with the row that records it. Files only ever add (a table, an index, a column with a
default), so that the version before and the version after can both work on the result while replicas are
replaced one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources

from berth import log
from berth.store.engine import Engine, Transaction

VERSIONS = """CREATE TABLE IF NOT EXISTS schema_versions (
  version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"""


@dataclass(frozen=True, slots=True)
class SchemaStep:
    version: int
    name: str
    text: str


def migrations(engine_name: str) -> list[SchemaStep]:
    """What ships with this version, in order."""
    folder = resources.files("berth.store") / "schema" / engine_name
    found = [
        SchemaStep(int(match[1]), match[2], file.read_text())
        for file in folder.iterdir()
        if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


async def migrate(engine: Engine) -> int:
    """Apply what is missing; returns the version reached. Twice, or twice at once, does no harm."""
    async with engine.transaction(slow=True) as tx:
        await tx.migrate_alone()
        await tx.script(VERSIONS)
    for migration in migrations(engine.name):
        async with engine.transaction(slow=True) as tx:
            await tx.migrate_alone()
            await _apply(tx, migration)
    return await _reached(engine)


async def _apply(tx: Transaction, migration: SchemaStep) -> None:
    if await tx.rows("SELECT 1 FROM schema_versions WHERE version = $1", migration.version):
        return
    await tx.script(migration.text)
    now = await tx.now()
    insert = "INSERT INTO schema_versions (version, name, applied_at) VALUES ($1, $2, $3)"
    await tx.rows(insert, migration.version, migration.name, now)
    log.get("berth.store").info("schema migrated", version=migration.version, name=migration.name)


async def _reached(engine: Engine) -> int:
    async with engine.snapshot() as tx:
        newest = int((await tx.rows("SELECT max(version) FROM schema_versions"))[0][0])
    if newest > migrations(engine.name)[-1].version:
        log.get("berth.store").warning("schema is newer than this program", version=newest)
    return newest
