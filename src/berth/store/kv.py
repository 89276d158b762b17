"""Small facts that outlive a process: named values, and leases on work that one replica at a time may do."""

from __future__ import annotations

from berth.store.engine import Transaction

TAKE = """INSERT INTO duties (name, holder, until_at) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at
WHERE duties.holder = excluded.holder OR duties.until_at <= $4 RETURNING name"""
SET = """INSERT INTO marks (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value"""


async def take_lease(tx: Transaction, name: str, who: str, times: tuple[int, int]) -> bool:
    """The lease on some work, from now until then; True for whoever has it already, or once its holder's time
    is over.
    """
    now, until = times
    return bool(await tx.rows(TAKE, name, who, until, now))


async def drop_leases(tx: Transaction, who: str) -> None:
    """Let others go on at once."""
    await tx.rows("DELETE FROM duties WHERE holder = $1", who)


async def mark(tx: Transaction, name: str) -> str:
    found = await tx.rows("SELECT value FROM marks WHERE name = $1", name)
    return str(found[0][0]) if found else ""


async def set_mark(tx: Transaction, name: str, value: str) -> None:
    await tx.rows(SET, name, value)
