"""How many addresses and entries are in which state; for metrics and for people."""

from __future__ import annotations

from berth.store.engine import Engine

Counts = dict[tuple[str, str], int]  # by pool and state

ADDRESSES = """SELECT pool, state, count(*) FROM (
  SELECT h.pool, CASE WHEN count(*) > count(h.expires_at) THEN 'in_use'
    WHEN max(h.expires_at) > $1 THEN 'retained' ELSE 'lapsed' END AS state
  FROM holders h GROUP BY h.pool, h.address) AS states GROUP BY pool, state"""
ENTRIES = """SELECT pool, state, count(*) FROM (
  SELECT pool, CASE WHEN expires_at IS NULL THEN 'active' WHEN expires_at <= $1 THEN 'lapsed'
    WHEN pending = 1 THEN 'pending' ELSE 'retained' END AS state FROM holders) AS states
GROUP BY pool, state"""


async def count_states(engine: Engine) -> tuple[Counts, Counts]:
    """Addresses (in_use, retained, lapsed) and entries (active, pending, retained, lapsed)."""
    async with engine.snapshot() as tx:
        now = await tx.now()
        addresses = {(row[0], row[1]): int(row[2]) for row in await tx.rows(ADDRESSES, now)}
        entries = {(row[0], row[1]): int(row[2]) for row in await tx.rows(ENTRIES, now)}
    return addresses, entries
