"""Rows of the ledger and the statements that read and write them. Values on one side, columns on the
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from berth.leasing.holders import Entry, Identity
from berth.secret import SecretHash
from berth.store.engine import Row, Transaction
from berth.store.statement import ADDRESS, ADVANCE, CONCERNED, HOLDER, INSERT_HISTORY, WIDTH


@dataclass(frozen=True, slots=True)
class AddressRow:
    """One address that is taken."""

    address: str
    pool: str
    uid: str
    secret_hash: SecretHash
    registered_at: int

    @classmethod
    def read(cls, row: Row) -> AddressRow:
        address, pool, uid, key_id, salt, digest, registered_at = row
        return cls(address, pool, uid, SecretHash(key_id, salt, digest), registered_at)

    def columns(self) -> tuple[Any, ...]:
        hashed = self.secret_hash
        return (
            self.address,
            self.pool,
            self.uid,
            hashed.key_id,
            hashed.salt,
            hashed.digest,
            self.registered_at,
        )


@dataclass(frozen=True, slots=True)
class HolderRow:
    """One holder on one address."""

    address: str
    pool: str
    entry: Entry

    @classmethod
    def read(cls, row: Row) -> HolderRow:
        address, _, pool, service, namespace, cluster, days, deny, uid, expires, pending, by, before = row
        identity = Identity(service, namespace, cluster)
        return cls(address, pool, Entry(identity, days, bool(deny), uid, expires, bool(pending), by, before))

    def columns(self) -> tuple[Any, ...]:
        entry, who = self.entry, self.entry.identity
        return (
            self.address,
            who.key,
            self.pool,
            who.service_name,
            who.namespace_id,
            who.cluster_id,
            entry.retention_days,
            int(entry.deny),
            entry.uid,
            entry.expires_at,
            int(entry.pending),
            entry.marked_by,
            entry.expires_before,
        )


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One line of history."""

    at: int
    pool: str
    address: str
    event: str
    effect: int = 0
    who: Identity | None = None
    detail: str = ""

    @classmethod
    def read(cls, row: Row) -> HistoryRow:
        at, pool, address, event, effect, service, namespace, cluster, detail = row
        who = Identity(service, namespace, cluster) if service or namespace or cluster else None
        return cls(at, pool, address, event, effect, who, detail)

    def columns(self) -> tuple[Any, ...]:
        who = self.who or Identity("", "", "")
        return (
            self.at,
            self.pool,
            self.address,
            self.event,
            self.effect,
            who.service_name,
            who.namespace_id,
            who.cluster_id,
            self.detail,
        )


@dataclass(frozen=True, slots=True)
class Behind:
    """A pool that changed since memory last saw it, at this revision."""

    pool: str = ""
    since: int = 0


async def concerned(
    tx: Transaction, identities: list[str], named: list[str], behind: Behind
) -> tuple[list[Row], list[tuple[AddressRow, HolderRow | None]]]:
    """How a pool changed, and the named addresses and those these holders are on, each with these holders'
    entries; one question.
    """
    found = list(map(tuple, await tx.rows(CONCERNED, identities, named, behind.pool, behind.since)))
    changes: list[Row] = [row[:4] for row in found if row[0] is not None]
    pairs = [row[3:] for row in found if row[0] is None]
    return changes, [
        (AddressRow.read(row[:WIDTH]), HolderRow.read(row[WIDTH:]) if row[WIDTH] is not None else None)
        for row in pairs
    ]


async def addresses(tx: Transaction, which: Sequence[str]) -> list[AddressRow]:
    found = await tx.rows(f"SELECT {ADDRESS} FROM addresses WHERE address = ANY($1)", list(which))
    return [AddressRow.read(row) for row in found]


async def holders_by(tx: Transaction, column: str, which: Sequence[str]) -> list[HolderRow]:
    """Entries by `address`, `identity` or `cluster_id`."""
    found = await tx.rows(f"SELECT {HOLDER} FROM holders WHERE {column} = ANY($1)", list(which))
    return [HolderRow.read(row) for row in found]


async def record(tx: Transaction, events: Iterable[HistoryRow]) -> None:
    await tx.many(INSERT_HISTORY, [event.columns() for event in events])


async def advance(tx: Transaction, pools: Iterable[str]) -> dict[str, int]:
    """Let the pools' revisions follow the history just written; returns the new ones."""
    which = sorted(set(pools))
    if not which:
        return {}
    return {row[0]: row[1] for row in await tx.rows(ADVANCE, which)}
