"""What a cluster's operator lists, compared with what the ledger has of that cluster:

    missing   listed, not in the ledger      adopted once two reports in a row say so, if it is free
    unknown   in the ledger, not listed      reported; a person, or the operator itself, decides
    conflict  listed, but another's here     reported; a held address is never moved

Nothing is ever released here. A report may keep alive what ROR said was gone, but not what the holder itself
gave back: the report may have been on its way when that happened. For the same reason one report alone
adopts nothing, and an operator's last words change nothing at all: they repeat an earlier list, and it may
be leaving because its cluster is taken down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from berth.leasing.holders import HolderReason, Identity
from berth.store import operators, rows
from berth.store.ledger import Ledger
from berth.store.operators import Beat
from berth.store.rows import AddressRow, HolderRow
from berth.store.secrets import Pepper
from berth.store.wishes import Granted, Register

PORTION = 500  # items between which other requests get their turn


@dataclass(frozen=True, slots=True)
class Difference:
    address: str
    who: Identity
    reason: str = ""


@dataclass(slots=True)
class Compared:
    """What a report and the ledger say of each other."""

    counted: bool = False  # whether it counts as the cluster's heartbeat
    frozen: bool = False
    adopted: list[Difference] = field(default_factory=list)
    missing: list[Difference] = field(default_factory=list)
    unknown: list[Difference] = field(default_factory=list)
    conflict: list[Difference] = field(default_factory=list)


@dataclass(slots=True)
class _Picture:
    """The ledger's rows that a report concerns, and what comparing them finds."""

    stored: dict[str, AddressRow] = field(default_factory=dict)
    entries: dict[tuple[str, str], HolderRow] = field(default_factory=dict)
    opened: bool = False  # at least one secret was right
    absent: list[Register] = field(default_factory=list)
    recall: list[Register] = field(default_factory=list)
    conflict: list[Difference] = field(default_factory=list)

    def compare(self, wish: Register, pepper: Pepper) -> None:
        assert wish.address is not None, "a report lists addresses"
        stored = self.stored.get(wish.address)
        opens = pepper.opens(wish.secret, stored.seal if stored else None)
        if stored is None:
            self.absent.append(wish)
        elif stored.pool != wish.pool or not opens:
            self.conflict.append(_difference(wish, HolderReason.NO_MATCH))
        else:
            self.opened = True
            self._compare_entry(wish, self.entries.get((stored.address, wish.entry.identity.key)))

    def _compare_entry(self, wish: Register, there: HolderRow | None) -> None:
        if there is None:
            self.absent.append(wish)
        elif there.entry.marked_by == "ror":
            self.recall.append(replace(wish, only_marked_by="ror"))
        elif not there.entry.active and not there.entry.pending:
            self.conflict.append(_difference(wish, "Expiring"))


def _difference(wish: Register, reason: str = "") -> Difference:
    return Difference(wish.address or "", wish.entry.identity, reason)


def _mark(wish: Register) -> str:
    """Names one listed item in the row that outlives the report."""
    return f"{wish.address} {wish.entry.identity.key}"


async def compare(ledger: Ledger, beat: Beat, listed: Sequence[Register], *, trusted: bool) -> Compared:
    """`trusted`: the caller has proved elsewhere that it may speak for this cluster. Otherwise a secret
    has to open something, or the cluster has nothing here: else the report tells nothing and counts for
    nothing, but for the last words of a process that was heard before and has nothing to list now.
    """
    picture, own = await _picture(ledger, beat.cluster_id, listed)
    result = Compared(conflict=picture.conflict)
    proved = trusted or picture.opened or not own
    result.counted = proved or (beat.leaving and await operators.has_spoken(ledger.engine, beat))
    confirmed = await _heard(ledger, beat, picture.absent, result) if result.counted else None
    acts = confirmed is not None and not beat.leaving
    seen_twice = confirmed if confirmed is not None and acts and not result.frozen else frozenset()
    adopting = [wish for wish in picture.absent if _mark(wish) in seen_twice]
    refused = await _submit(ledger, adopting, result) if adopting else {}
    if acts and picture.recall:
        await asyncio.gather(*(ledger.submit(wish) for wish in picture.recall))
    done = {(one.address, one.who) for one in result.adopted}
    result.missing = [
        _difference(wish, refused.get(_mark(wish), ""))
        for wish in picture.absent
        if (wish.address, wish.entry.identity) not in done
    ]
    if proved:
        result.unknown = _unknown(own, listed)
    return result


async def _picture(
    ledger: Ledger, cluster_id: str, listed: Sequence[Register]
) -> tuple[_Picture, list[HolderRow]]:
    picture = _Picture()
    async with ledger.engine.snapshot() as tx:
        own = await rows.holders_by(tx, "cluster_id", [cluster_id])
        named = sorted({wish.address for wish in listed if wish.address})
        picture.stored = {row.address: row for row in await rows.addresses(tx, named)}
    picture.entries = {(row.address, row.entry.identity.key): row for row in own}
    for at, wish in enumerate(listed, 1):
        picture.compare(wish, ledger.rules.pepper)
        if at % PORTION == 0:
            await asyncio.sleep(0)
    return picture, own


async def _heard(
    ledger: Ledger, beat: Beat, absent: Iterable[Register], result: Compared
) -> frozenset[str] | None:
    async with ledger.engine.transaction() as tx:
        confirmed = await operators.heard(tx, beat, map(_mark, absent))
        result.frozen = bool(await operators.frozen(tx, [beat.cluster_id], await tx.now()))
    return confirmed


async def _submit(ledger: Ledger, wishes: Sequence[Register], result: Compared) -> dict[str, str]:
    """Register what is missing as any POST would; returns the reasons of those that were refused."""
    refused = {}
    for wish, answer in zip(wishes, await asyncio.gather(*map(ledger.submit, wishes)), strict=True):
        if isinstance(answer, Granted):
            result.adopted.append(_difference(wish))
        else:
            refused[_mark(wish)] = getattr(answer, "reason", "")
    return refused


def _unknown(own: Iterable[HolderRow], listed: Iterable[Register]) -> list[Difference]:
    known = {(wish.address, wish.entry.identity) for wish in listed}
    return [
        Difference(row.address, row.entry.identity)
        for row in own
        if row.entry.active and (row.address, row.entry.identity) not in known
    ]
