"""A ledger with very many addresses held, written straight into the tables: the state, not the way there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from berth.leasing.holders import Entry, Identity
from berth.net import Family
from berth.net.block import Block
from berth.secret import SecretHash
from berth.store import statement
from berth.store.rows import AddressRow, HistoryRow, HolderRow
from berth.store.sqlite import connection, translated

FIRST = 10 << 24
POOL = "bench/4"
ROOM = 60_000  # free addresses the benchmark itself needs, in a small zone


def zones_text(held: int) -> str:
    """A zone that the held addresses fill to about 90%, with room for the benchmark's own."""
    size = max(held * 10 // 9, held + ROOM)
    last = Block(Family.V4, FIRST + size - 1, 32).address
    return f"zones:\n  - name: bench\n    ipv4: [10.0.0.0-{last}]\n"


def addresses(held: int) -> Iterator[str]:
    """Scattered: of every ten addresses nine are taken, as far as they go."""
    numbers = (number for number in range(held * 10 // 9 + 10) if number % 10 != 9)
    for number in islice(numbers, held):
        yield Block(Family.V4, FIRST + number, 32).address


def _rows(held: int) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    for number, address in enumerate(addresses(held)):
        row = AddressRow(address, POOL, f"u{number}", SecretHash("k", b"s" * 16, b"d" * 32), 1)
        who = Identity(f"held-{number}", f"namespace-{number % 1000}", f"cluster-{number % 100}")
        yield row.columns(), HolderRow(address, POOL, Entry(who)).columns()


async def prefill(url: str, held: int) -> None:
    if url.startswith("sqlite"):
        await asyncio.to_thread(_sqlite, Path(url.removeprefix("sqlite:///")), held)
    else:
        await _postgres(url, held)


def _sqlite(path: Path, held: int) -> None:
    opened = connection(path)
    opened.execute("PRAGMA synchronous = OFF")
    opened.execute("BEGIN")
    opened.execute("INSERT INTO pools (key, zone, family) VALUES (?, 'bench', 4)", (POOL,))
    source = _rows(held)
    while portion := list(islice(source, 20_000)):
        opened.executemany(translated(statement.INSERT_ADDRESS), [one for one, _ in portion])
        opened.executemany(translated(statement.UPSERT_HOLDER), [one for _, one in portion])
    opened.execute(
        translated(statement.INSERT_HISTORY), HistoryRow(1, POOL, "10.0.0.0", "imported", 1).columns()
    )
    opened.execute("UPDATE pools SET revision = (SELECT max(id) FROM history)")
    opened.execute("COMMIT")
    opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    opened.close()


async def _postgres(url: str, held: int) -> None:
    import asyncpg

    opened = await asyncpg.connect(url)
    await opened.execute("INSERT INTO pools (key, zone, family) VALUES ($1, 'bench', 4)", POOL)
    source = _rows(held)
    while portion := list(islice(source, 20_000)):
        await opened.copy_records_to_table(
            "addresses", records=[one for one, _ in portion], columns=statement.ADDRESS.split(", ")
        )
        await opened.copy_records_to_table(
            "holders", records=[one for _, one in portion], columns=statement.HOLDER.split(", ")
        )
    await opened.execute(statement.INSERT_HISTORY, *HistoryRow(1, POOL, "10.0.0.0", "imported", 1).columns())
    await opened.execute("UPDATE pools SET revision = (SELECT max(id) FROM history)")
    await opened.execute("VACUUM ANALYZE addresses, holders")
    await opened.close()
