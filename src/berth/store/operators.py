"""Who speaks for a cluster. Each operator process reports what its cluster lists, under an epoch of its own
and about once a minute. As long as two epochs of one cluster are heard, one of them is a copy that does not
know it is one: then nothing of that cluster is released. That ends by itself once only one is heard.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from berth.store.engine import Engine, Row, Transaction

COLUMNS = "cluster_id, epoch, sequence, first_at, seen_at, live_until, missing"
HEARD = f"""INSERT INTO operators ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (cluster_id, epoch) DO UPDATE SET sequence = excluded.sequence,
  seen_at = excluded.seen_at, live_until = excluded.live_until, missing = excluded.missing
WHERE operators.sequence < excluded.sequence"""
SEVERAL = """SELECT cluster_id FROM operators WHERE cluster_id = ANY($1) AND live_until > $2
GROUP BY cluster_id HAVING count(*) > 1"""
ALL_SEVERAL = """SELECT cluster_id FROM operators WHERE live_until > $1
GROUP BY cluster_id HAVING count(*) > 1"""
PRUNE = "DELETE FROM operators WHERE live_until < $1"


@dataclass(frozen=True, slots=True)
class Beat:
    """One report's envelope."""

    cluster_id: str
    epoch: str
    sequence: int
    heartbeat_ms: int
    leaving: bool = False  # its last words: a successor need not wait until it is silent

    def live_until(self, now: int) -> int:
        """One report may be late by half its pause."""
        return now if self.leaving else now + self.heartbeat_ms * 3 // 2


@dataclass(frozen=True, slots=True)
class Operator:
    """A row: one process that speaks, or spoke, for a cluster."""

    cluster_id: str
    epoch: str
    sequence: int
    first_at: int
    seen_at: int
    live_until: int
    missing: frozenset[str] = frozenset()

    @classmethod
    def read(cls, row: Row) -> Operator:
        cluster_id, epoch, sequence, first_at, seen_at, live_until, missing = row
        listed = frozenset(orjson.loads(missing))
        return cls(cluster_id, epoch, sequence, first_at, seen_at, live_until, listed)


async def heard(tx: Transaction, beat: Beat, missing: Iterable[str]) -> frozenset[str] | None:
    """Note a report; returns what of `missing` its predecessor had too. None: it came twice, or late, and is
    not noted.
    """
    now, listed = await tx.now(), frozenset(missing)
    found = await tx.rows(
        f"SELECT {COLUMNS} FROM operators WHERE cluster_id = $1 AND epoch = $2", beat.cluster_id, beat.epoch
    )
    before = Operator.read(found[0]) if found else None
    text = orjson.dumps(sorted(listed)).decode()
    until = beat.live_until(now)
    await tx.rows(HEARD, beat.cluster_id, beat.epoch, beat.sequence, now, now, until, text)
    if before is None:
        return frozenset()
    return listed & before.missing if before.sequence < beat.sequence else None


async def has_spoken(engine: Engine, beat: Beat) -> bool:
    """Whether a report of this very process was noted before."""
    async with engine.snapshot() as tx:
        found = await tx.rows(
            "SELECT 1 FROM operators WHERE cluster_id = $1 AND epoch = $2", beat.cluster_id, beat.epoch
        )
    return bool(found)


async def frozen(tx: Transaction, clusters: Iterable[str], now: int) -> frozenset[str]:
    """Those of the clusters for which two operators speak."""
    return frozenset(row[0] for row in await tx.rows(SEVERAL, sorted(set(clusters)), now))


async def all_frozen(engine: Engine) -> list[str]:
    async with engine.snapshot() as tx:
        return sorted(row[0] for row in await tx.rows(ALL_SEVERAL, await tx.now()))


async def operators(engine: Engine) -> tuple[int, list[Operator]]:
    """The database's time, and everyone who was heard within the last day."""
    async with engine.snapshot() as tx:
        found = await tx.rows(f"SELECT {COLUMNS} FROM operators ORDER BY cluster_id, first_at")
        return await tx.now(), [Operator.read(row) for row in found]
