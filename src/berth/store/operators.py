"""Who speaks for a cluster. Each operator process reports what its cluster lists, under an epoch of its own,
and says between two reports that it is still there. As long as two epochs of one cluster are heard, one of
them is a copy that does not know it is one: then nothing of that cluster is released. That ends by itself
once only one is heard.

Silence counts only while somebody listens: what passes while every replica, or the database, is away is added
to the time of all who were heard before. Otherwise a copy that is the first to be heard again could release.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from berth.store import kv
from berth.store.engine import Engine, Row, Transaction
from berth.store.sighting import Sighting

EPOCHS = 4  # of one cluster that are remembered
LISTENING = "listening"
LISTENING_MS = 5_000  # how often it is written down that somebody listens
DEAF_MS = 10_000  # nobody did, when it was not written down for so long

COLUMNS = "cluster_id, epoch, sequence, first_at, seen_at, live_until, missing"
NOTE = f"""INSERT INTO operators ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (cluster_id, epoch) DO UPDATE SET sequence = excluded.sequence,
  seen_at = excluded.seen_at, live_until = excluded.live_until, missing = excluded.missing
WHERE operators.sequence < excluded.sequence"""
ALIVE = """UPDATE operators SET sequence = $3, seen_at = $4, live_until = $5
WHERE cluster_id = $1 AND epoch = $2 AND sequence < $3"""
CROWD_OUT = f"""DELETE FROM operators WHERE cluster_id = $1 AND epoch IN (
  SELECT epoch FROM operators WHERE cluster_id = $1 AND epoch <> $2
  ORDER BY live_until DESC, epoch LIMIT 1000 OFFSET {EPOCHS - 1})"""
# `$1` is now; who was heard until the last moment in which somebody listened lives as well.
LIVING = f"""(live_until > $1 OR live_until > {DEAF_MS} +
  coalesce((SELECT CAST(value AS BIGINT) FROM marks WHERE name = '{LISTENING}'), $1))"""
SEVERAL = f"""SELECT cluster_id FROM operators WHERE cluster_id = ANY($2) AND {LIVING}
GROUP BY cluster_id HAVING count(*) > 1"""
ALL_SEVERAL = f"SELECT cluster_id FROM operators WHERE {LIVING} GROUP BY cluster_id HAVING count(*) > 1"
HEARD_AGAIN = "UPDATE marks SET value = $2 WHERE name = $1 AND value = $3 RETURNING name"
WAIT_LONGER = (
    "UPDATE operators SET live_until = live_until + $1 WHERE live_until > $2 AND live_until > seen_at"
)
# The last word of a cluster stays as long as it has entries: somebody may ask when it fell silent.
PRUNE = """DELETE FROM operators WHERE live_until < $1 AND (
  NOT EXISTS (SELECT 1 FROM holders WHERE holders.cluster_id = operators.cluster_id)
  OR EXISTS (SELECT 1 FROM operators later WHERE later.cluster_id = operators.cluster_id
    AND (later.seen_at > operators.seen_at
      OR (later.seen_at = operators.seen_at AND later.epoch > operators.epoch))))"""
SHRINK = "UPDATE operators SET missing = '[]' WHERE live_until < $1 AND missing <> '[]'"
SILENT = f"""SELECT silent.cluster_id, silent.seen_at, held.entries FROM (
  SELECT cluster_id, max(seen_at) AS seen_at FROM operators
  GROUP BY cluster_id HAVING sum(CASE WHEN {LIVING} THEN 1 ELSE 0 END) = 0) silent
JOIN (SELECT cluster_id, count(*) AS entries FROM holders WHERE expires_at IS NULL GROUP BY cluster_id) held
  ON held.cluster_id = silent.cluster_id
ORDER BY silent.seen_at, silent.cluster_id"""


@dataclass(frozen=True, slots=True)
class Beat:
    """One report's envelope, or a heartbeat without a report."""

    cluster_id: str
    epoch: str
    sequence: int
    heartbeat_ms: int = 0  # between two reports
    leaving: bool = False  # its last words: a successor need not wait until it is silent
    alive_ms: int = 0  # between two heartbeats; 0: none come between its reports

    def live_until(self, now: int) -> int:
        """Two heartbeats may be lost and one be late by a quarter; of mere reports one by half its pause."""
        if self.leaving:
            return now
        return now + (self.alive_ms * 9 // 4 or self.heartbeat_ms * 3 // 2)


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """A row: one process that speaks, or spoke, for a cluster."""

    cluster_id: str
    epoch: str
    sequence: int
    first_at: int
    seen_at: int
    live_until: int
    missing: Sighting

    @classmethod
    def read(cls, row: Row) -> OperatorRow:
        cluster_id, epoch, sequence, first_at, seen_at, live_until, missing = row
        return cls(cluster_id, epoch, sequence, first_at, seen_at, live_until, Sighting.read(missing))


@dataclass(frozen=True, slots=True)
class SilentCluster:
    """One that has reported, holds addresses, and for which nobody speaks any more."""

    cluster_id: str
    seen_at: int
    entries: int


async def heard(tx: Transaction, beat: Beat, missing: Sighting) -> Sighting | None:
    """Note a report; returns what its predecessor was missing. None: it came twice, or late, and is not
    noted.
    """
    now = await listened(tx)
    found = await tx.rows(
        f"SELECT {COLUMNS} FROM operators WHERE cluster_id = $1 AND epoch = $2", beat.cluster_id, beat.epoch
    )
    before = OperatorRow.read(found[0]) if found else None
    until = beat.live_until(now)
    await tx.rows(NOTE, beat.cluster_id, beat.epoch, beat.sequence, now, now, until, missing.text())
    if before is None:
        await tx.rows(CROWD_OUT, beat.cluster_id, beat.epoch)
        return Sighting()
    return before.missing if before.sequence < beat.sequence else None


async def listened(tx: Transaction) -> int:
    """Write down that somebody listens now, and give those time who could not be heard before. Returns the
    database's time.
    """
    now, mark = await tx.now(), await kv.mark(tx, LISTENING)
    if not mark:
        await kv.set_mark(tx, LISTENING, str(now))
    elif now - int(mark) >= LISTENING_MS and await tx.rows(HEARD_AGAIN, LISTENING, str(now), mark):
        deaf_ms = now - int(mark)
        if deaf_ms > DEAF_MS:
            await tx.rows(WAIT_LONGER, deaf_ms, int(mark))
    return now


async def has_spoken(engine: Engine, beat: Beat) -> bool:
    """Whether a report of this very process was noted before."""
    async with engine.snapshot() as tx:
        found = await tx.rows(
            "SELECT 1 FROM operators WHERE cluster_id = $1 AND epoch = $2", beat.cluster_id, beat.epoch
        )
    return bool(found)


async def frozen(tx: Transaction, clusters: Iterable[str], now: int) -> frozenset[str]:
    """Those of the clusters for which two operators speak."""
    return frozenset(row[0] for row in await tx.rows(SEVERAL, now, sorted(set(clusters))))


async def speaking(tx: Transaction, cluster_id: str, now: int) -> bool:
    """Whether an operator of this cluster is heard."""
    return bool(await tx.rows(f"SELECT 1 FROM operators WHERE {LIVING} AND cluster_id = $2", now, cluster_id))


async def all_frozen(engine: Engine) -> list[str]:
    async with engine.snapshot() as tx:
        return sorted(row[0] for row in await tx.rows(ALL_SEVERAL, await tx.now()))


async def silent(engine: Engine) -> tuple[int, list[SilentCluster]]:
    """The database's time, and the clusters that fell silent with addresses in use, the oldest first. One
    that never reported is none of them.
    """
    async with engine.snapshot() as tx:
        now = await tx.now()
        return now, [SilentCluster(*row) for row in await tx.rows(SILENT, now)]


async def prune(tx: Transaction, before: int) -> None:
    """Forget who was not heard since then, but for each cluster's last word."""
    await tx.rows(PRUNE, before)
    await tx.rows(SHRINK, before)


async def operators(engine: Engine) -> tuple[int, list[OperatorRow]]:
    """The time until which everybody was listened to, and everyone who was heard within the last day, or
    was the last of a cluster that has entries.
    """
    async with engine.snapshot() as tx:
        found = await tx.rows(f"SELECT {COLUMNS} FROM operators ORDER BY cluster_id, first_at")
        now, mark = await tx.now(), await kv.mark(tx, LISTENING)
        return min(now, int(mark or now) + DEAF_MS), [OperatorRow.read(row) for row in found]
