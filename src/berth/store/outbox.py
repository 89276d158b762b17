"""Changes on their way to NetBox, written in the transaction of the change itself and taken out when done."""

from __future__ import annotations

from dataclasses import dataclass

from berth.backoff import Backoff
from berth.store import kv
from berth.store.engine import Engine

BACKOFF = Backoff(1.0, 300.0)
DUE = """SELECT id, kind, address, pool, uid, tries FROM outbox WHERE due_at <= $1
AND id IN (SELECT min(id) FROM outbox GROUP BY address) ORDER BY id LIMIT 50"""


@dataclass(frozen=True, slots=True)
class OutboxItem:
    id: int
    kind: str  # push or drop
    address: str
    pool: str
    uid: str
    tries: int


async def due(engine: Engine, who: str) -> list[OutboxItem]:
    """What is to be delivered now, the oldest of each address; only to the replica that has the lease."""
    async with engine.transaction() as tx:
        now = await tx.now()
        if not await kv.take_lease(tx, "netbox", who, (now, now + 60_000)):
            return []
        return [OutboxItem(*row) for row in await tx.rows(DUE, now)]


async def done(engine: Engine, item: OutboxItem) -> None:
    async with engine.transaction() as tx:
        await tx.rows("DELETE FROM outbox WHERE id = $1", item.id)


async def failed(engine: Engine, item: OutboxItem) -> None:
    """Again later, with growing pauses; others overtake it, its own address waits."""
    async with engine.transaction() as tx:
        due_at = await tx.now() + round(BACKOFF.delay(item.tries) * 1000)
        await tx.rows("UPDATE outbox SET tries = tries + 1, due_at = $2 WHERE id = $1", item.id, due_at)


async def length(engine: Engine) -> int:
    async with engine.snapshot() as tx:
        return int((await tx.rows("SELECT count(*) FROM outbox"))[0][0])
