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
from berth.store.engine import Engine

VERSIONS = """CREATE TABLE IF NOT EXISTS schema_versions (
  version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)"""


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str


def migrations(engine_name: str) -> list[Migration]:
    """What ships with this version, in order."""
    folder = resources.files("berth.store") / "schema" / engine_name
    found = [
        Migration(int(match[1]), match[2], file.read_text())
        for file in folder.iterdir()
        if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


async def migrate(engine: Engine) -> int:
    """Apply what is missing; returns the version reached. Running it twice, or twice at once, does no
    harm.
    """
    async with engine.transaction(slow=True) as tx:
        await tx.rows(VERSIONS)
    async with engine.transaction(slow=True) as tx:
        applied = {row[0] for row in await tx.rows("SELECT version FROM schema_versions")}
        now = await tx.now()
    known = migrations(engine.name)
    for migration in known:
        if migration.version not in applied:
            await engine.script(migration.text, migration.version, migration.name, now)
            log.get("berth.store").info("schema migrated", version=migration.version, name=migration.name)
    newest: int = max([migration.version for migration in known] + list(applied))
    if newest > known[-1].version:
        log.get("berth.store").warning("schema is newer than this program", version=newest)
    return newest
