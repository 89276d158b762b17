"""Releases that are not the holder's own: a whole cluster's (by token or by ROR's event), an
administrator's, and the undo of either. Each is one transaction under the locks of all pools; entries that
deny external clean-up are left alone, and an expiry only ever comes nearer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from berth.errors import BerthError
from berth.leasing import holders
from berth.leasing.holders import Entry, Identity
from berth.store import kv, operators, rows, statement
from berth.store.engine import Engine, Locked, Transaction
from berth.store.rows import HistoryRow, HolderRow

HOUR_MS = 3600 * 1000
NOT_ITS_HOLDER = frozenset({"cluster", "ror", "cli", "silent"})  # whose releases can be undone


@dataclass(frozen=True, slots=True)
class ClusterRelease:
    """How many entries of a cluster now expire, which were kept from it, and whether there were any."""

    expired: int = 0
    skipped: tuple[HolderRow, ...] = ()
    found: int = 0
    repeated: bool = False  # the event was seen before: nothing was done
    frozen: bool = False  # two operators speak for the cluster: nothing was done
    speaking: bool = False  # it is not silent: nothing was done


@dataclass(frozen=True, slots=True)
class Order:
    """Release everything of one cluster."""

    cluster_id: str
    by: str  # cluster, ror, cli or silent: the last only while no operator of the cluster is heard
    event_id: str = ""  # of the message that asked for it; the same id never counts twice
    at_once: bool = False  # an administrator may set retention aside …
    include_denied: bool = False  # … and the deny flag
    grace_ms: int = 0  # no entry expires earlier than this, so that there is time for an undo
    most_per_hour: int | None = None  # clusters that may go by this way, over all replicas; then Flooded


class Flooded(BerthError):
    """More clusters are to be released within an hour than can be true; nothing was done."""

    reason = "Flooded"


async def release_cluster(engine: Engine, order: Order) -> ClusterRelease:
    async with engine.transaction(slow=True) as tx:
        locked = await tx.lock(None)
        now = locked.now
        if order.event_id and not await first_sight(tx, order.event_id, now):
            return ClusterRelease(repeated=True)
        # An administrator knows better; and what ROR marks, a living operator's report takes back.
        if order.by == "cluster" and await operators.frozen(tx, [order.cluster_id], now):
            return ClusterRelease(frozen=True)
        if order.by == "silent" and await operators.speaking(tx, order.cluster_id, now):
            return ClusterRelease(speaking=True)
        there = await rows.holders_by(tx, "cluster_id", [order.cluster_id])
        skipped = tuple(row for row in there if row.entry.deny and not order.include_denied)
        open_ = [row for row in there if order.include_denied or not row.entry.deny]
        changed = await _change(tx, open_, _marking(order, locked), (now, "marked", order.by))
        if changed and order.most_per_hour is not None:
            await _count_release(tx, order, now)
        return ClusterRelease(changed, skipped, len(there))


async def _count_release(tx: Transaction, order: Order, now: int) -> None:
    """In the transaction of the release, under the lock of all pools: replicas and restarts share the count,
    and whoever is over it has changed nothing. Times that a wrong clock left in the future do not count.
    """
    name = f"{order.by}-released"
    kept = [int(word) for word in (await kv.mark(tx, name)).split()]
    recent = [at for at in kept if abs(now - at) < HOUR_MS]
    if order.most_per_hour is not None and len(recent) >= order.most_per_hour:
        raise Flooded(f"{len(recent)} clusters were released within an hour")
    await kv.set_mark(tx, name, " ".join(map(str, [*recent, now])))


def _marking(order: Order, locked: Locked) -> Callable[[Entry], Entry]:
    begins = locked.begins

    def mark(entry: Entry) -> Entry:
        retained = max(begins + order.grace_ms, holders.after_retention(entry, begins))
        return holders.marked(entry, order.by, locked.now if order.at_once else retained)

    return mark


async def first_sight(tx: Transaction, event_id: str, now: int) -> bool:
    """Note an event's id, in the transaction of its effect; False if it was noted before. As a digest: an
    id may be longer than PostgreSQL's indexes take.
    """
    sql = "INSERT INTO seen_events (id, at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING RETURNING id"
    return bool(await tx.rows(sql, hashlib.sha256(event_id.encode()).hexdigest(), now))


async def release_entry(engine: Engine, address: str, who: Identity) -> bool:
    """An administrator ends one entry now; the others on the address are not touched. False: no such
    entry.
    """
    async with engine.transaction(slow=True) as tx:
        now = (await tx.lock(None)).now
        there = [row for row in await rows.holders_by(tx, "address", [address]) if row.entry.identity == who]
        await _change(
            tx,
            there,
            lambda entry: holders.marked(entry, "cli", now),
            (now, "marked", "cli"),
        )
        return bool(there)


async def undo(engine: Engine, column: str, value: str) -> int:
    """Put back the expiry that somebody else's release took the place of; returns how many entries were
    changed. What its holder itself gave back stays given back: nobody would ever release it again.
    """
    async with engine.transaction(slow=True) as tx:
        now = (await tx.lock(None)).now
        found = await rows.holders_by(tx, column, [value])
        there = [row for row in found if row.entry.marked_by in NOT_ITS_HOLDER]
        return await _change(tx, there, holders.unmarked, (now, "undone", ""))


async def _change(
    tx: Transaction,
    there: Iterable[HolderRow],
    edit: Callable[[Entry], Entry],
    story: tuple[int, str, str],
) -> int:
    now, event, detail = story
    pairs = [(row, replace(row, entry=edit(row.entry))) for row in there]
    changed = [new for old, new in pairs if new.entry.expires_at != old.entry.expires_at]
    await _write(tx, changed)
    await rows.record(
        tx, [HistoryRow(now, row.pool, row.address, event, 0, row.entry.identity, detail) for row in changed]
    )
    return len(changed)


async def _write(tx: Transaction, changed: Sequence[HolderRow]) -> None:
    if changed:
        await tx.many(statement.UPSERT_HOLDER, [row.columns() for row in changed])
