"""What a cluster's operator lists, compared with what the ledger has of that cluster:

    missing   listed, not in the ledger      adopted once two reports in a row say so, if it is free
    unknown   in the ledger, not listed      reported; a person, or the operator itself, decides
    conflict  listed, but another's here     reported; a held address is never moved

Nothing is ever released here. A report may keep alive what ROR, or a person who saw a silent cluster, said
was gone, but not what the holder itself gave back: the report may have been on its way when that happened.
For the same reason one report alone adopts nothing, and an operator's last words change nothing at all: they
repeat an earlier list, and it may be leaving because its cluster is taken down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from berth.leasing.holders import Identity
from berth.leasing.model import Reason
from berth.secret import Pepper
from berth.store import operators
from berth.store.engine import Row
from berth.store.ledger import Ledger
from berth.store.newcomers import Newcomers
from berth.store.operators import Beat
from berth.store.requests import Granted, RegisterRequest
from berth.store.rows import AddressRow, HolderRow
from berth.store.sighting import Sighting
from berth.store.statement import ADDRESS, HOLDER

PORTION = 500  # items between which other requests get their turn
T = TypeVar("T")
TAKEN_BACK = ("ror", "silent")  # whose marks say no more than: the cluster seems to be gone


@dataclass(frozen=True, slots=True)
class Difference:
    address: str
    who: Identity
    reason: str = ""


@dataclass(slots=True)
class Comparison:
    """What a report and the ledger say of each other."""

    counted: bool = False  # whether it counts as the cluster's heartbeat
    frozen: bool = False
    adopted: list[Difference] = field(default_factory=list)
    missing: list[Difference] = field(default_factory=list)
    unknown: list[Difference] = field(default_factory=list)
    conflict: list[Difference] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)  # addresses that a listed secret did not open; not told


@dataclass(slots=True)
class _Picture:
    """The ledger's rows that a report concerns, and what comparing them finds."""

    stored: dict[str, AddressRow] = field(default_factory=dict)
    entries: dict[tuple[str, str], HolderRow] = field(default_factory=dict)
    own: frozenset[str] = frozenset()  # addresses on which the cluster has entries
    opened: bool = False  # at least one of those, by the right secret
    absent: list[RegisterRequest] = field(default_factory=list)
    recall: list[RegisterRequest] = field(default_factory=list)
    conflict: list[Difference] = field(default_factory=list)
    unknown: list[Difference] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    right: set[str] = field(default_factory=set)  # opened, if not by the first secret of two
    missing: Sighting = field(default_factory=Sighting)

    @classmethod
    def drawn(
        cls, own: Sequence[Row], stored: Sequence[Row], listed: Sequence[RegisterRequest], pepper: Pepper
    ) -> _Picture:
        """From the rows of the cluster's entries, and of the addresses that are listed."""
        holders = [HolderRow.read(row) for row in own]
        picture = cls(
            {row.address: row for row in map(AddressRow.read, stored)},
            {(row.address, row.entry.identity.key): row for row in holders},
            frozenset(row.address for row in holders),
        )
        for request in listed:
            picture.compare(request, pepper)
        picture.guessed = [address for address in picture.guessed if address not in picture.right]
        picture.unknown = _unknown(holders, listed)
        picture.missing = Sighting.of(map(_mark, picture.absent))
        return picture

    def compare(self, request: RegisterRequest, pepper: Pepper) -> None:
        assert request.address is not None, "a report lists addresses"
        stored = self.stored.get(request.address)
        opens = pepper.verifies(request.secret, stored.secret_hash if stored else None)
        if stored is None:
            self.absent.append(request)
        elif stored.pool != request.pool or not opens:
            self.conflict.append(_difference(request, Reason.NO_MATCH))
            self.guessed.append(request.address)
        else:
            self.right.add(stored.address)
            self.opened = self.opened or stored.address in self.own
            self._compare_entry(request, self.entries.get((stored.address, request.entry.identity.key)))

    def _compare_entry(self, request: RegisterRequest, there: HolderRow | None) -> None:
        if there is None:
            self.absent.append(request)
        elif there.entry.marked_by in TAKEN_BACK:
            self.recall.append(replace(request, only_marked_by=there.entry.marked_by))
        elif not there.entry.active and not there.entry.pending:
            self.conflict.append(_difference(request, "Expiring"))


def _difference(request: RegisterRequest, reason: str = "") -> Difference:
    return Difference(request.address or "", request.entry.identity, reason)


def _mark(request: RegisterRequest) -> str:
    """Names one listed item, where the report is remembered."""
    return f"{request.address} {request.entry.identity.key}"


async def compare(
    ledger: Ledger, beat: Beat, listed: Sequence[RegisterRequest], newcomers: Newcomers, *, trusted: bool
) -> Comparison:
    """`trusted`: the caller has proved elsewhere that it may speak for this cluster. Otherwise a secret
    has to open an address on which the cluster has an entry, or the cluster has nothing here: else the report
    tells nothing and counts for nothing, but for the last words of a process that was heard before and has
    nothing to list now.
    """
    picture = await _picture(ledger, beat.cluster_id, listed)
    result = Comparison(guessed=picture.guessed)
    if not (trusted or picture.opened or not picture.own):
        if beat.leaving and (newcomers.know(beat) or await operators.has_spoken(ledger.engine, beat)):
            result.counted = True
            await _heard(ledger, beat, picture.missing, result)
        return result
    result.counted, result.conflict, result.unknown = True, picture.conflict, picture.unknown
    if picture.own:
        newcomers.forget(beat)
        before = await _heard(ledger, beat, picture.missing, result)
    else:
        before = newcomers.heard(beat, picture.missing)
    refused: dict[str, str] = {}
    if before is not None and not beat.leaving:
        refused = await _take_back(ledger, picture, before, result)
    if result.adopted and not picture.own:  # from now on it has something to lose
        newcomers.forget(beat)
        await _heard(ledger, beat, picture.missing, result)
    result.missing = await beside(len(picture.absent), _missing, picture.absent, result.adopted, refused)
    return result


def _missing(
    absent: Iterable[RegisterRequest], adopted: Iterable[Difference], refused: Mapping[str, str]
) -> list[Difference]:
    done = {(one.address, one.who) for one in adopted}
    return [
        _difference(request, refused.get(_mark(request), ""))
        for request in absent
        if (request.address, request.entry.identity) not in done
    ]


async def beside(items: int, function: Callable[..., T], *args: Any) -> T:
    """What takes long for so many items is done in a thread, so that other requests get their turn."""
    return function(*args) if items <= PORTION else await asyncio.to_thread(function, *args)


async def _picture(ledger: Ledger, cluster_id: str, listed: Sequence[RegisterRequest]) -> _Picture:
    async with ledger.engine.snapshot() as tx:
        own = await tx.rows(f"SELECT {HOLDER} FROM holders WHERE cluster_id = ANY($1)", [cluster_id])
        named = sorted({request.address for request in listed if request.address})
        stored = await tx.rows(f"SELECT {ADDRESS} FROM addresses WHERE address = ANY($1)", named)
    return await beside(len(own) + len(listed), _Picture.drawn, own, stored, listed, ledger.rules.pepper)


async def _heard(ledger: Ledger, beat: Beat, missing: Sighting, result: Comparison) -> Sighting | None:
    async with ledger.engine.transaction() as tx:
        before = await operators.heard(tx, beat, missing)
        result.frozen = bool(await operators.frozen(tx, [beat.cluster_id], await tx.now()))
    return before


async def _take_back(
    ledger: Ledger, picture: _Picture, before: Sighting, result: Comparison
) -> dict[str, str]:
    """What was missing twice comes back, and what was marked because the cluster seemed to be gone. Returns
    the reasons of those that were refused.
    """
    twice = [request for request in picture.absent if picture.missing.confirms(before, _mark(request))]
    refused = {} if result.frozen else await _submit(ledger, twice, result)
    for at in range(0, len(picture.recall), PORTION):
        await asyncio.gather(*map(ledger.submit, picture.recall[at : at + PORTION]))
    return refused


async def _submit(ledger: Ledger, requests: Sequence[RegisterRequest], result: Comparison) -> dict[str, str]:
    """Register what is missing as any POST would, some at a time; returns the reasons of those that were
    refused.
    """
    refused = {}
    for at in range(0, len(requests), PORTION):
        some = requests[at : at + PORTION]
        for request, answer in zip(some, await asyncio.gather(*map(ledger.submit, some)), strict=True):
            if isinstance(answer, Granted):
                result.adopted.append(_difference(request))
            else:
                refused[_mark(request)] = getattr(answer, "reason", "")
    return refused


def _unknown(own: Iterable[HolderRow], listed: Iterable[RegisterRequest]) -> list[Difference]:
    known = {(request.address, request.entry.identity) for request in listed}
    return [
        Difference(row.address, row.entry.identity)
        for row in own
        if row.entry.active and (row.address, row.entry.identity) not in known
    ]
