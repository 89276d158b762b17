"""The whole ledger as JSON lines, out of one consistent view and back in: backup and restore, export
and import, and the way from SQLite to PostgreSQL. The same lines for both stores.

A backup carries the seals of the secrets (never a secret) and the history; an export leaves the seals
out, so what is imported from one opens to nobody until its secret is replaced.
"""

from __future__ import annotations

import gzip
import os
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from berth.errors import UserError
from berth.leasing.holders import Entry, Identity
from berth.store.engine import Engine
from berth.store.looking import Record, all_history, all_records
from berth.store.rows import AddressRow, Event, HolderRow
from berth.store.secrets import Seal

FORMAT = 1
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    addresses: int
    events: int


async def write(engine: Engine, path: Path, *, whole: bool) -> Written:
    """Write a file only its owner can read; it takes its name when it is complete."""
    unfinished = path.with_name(path.name + ".part")
    try:
        with opened(unfinished, "wb", gzipped=path.suffix == ".gz") as file:
            written = await _write(engine, file, whole)
        unfinished.replace(path)
    except OSError as cause:
        raise UserError(f"{path} cannot be written: {cause.strerror}.") from cause
    return written


async def _write(engine: Engine, file: BinaryIO, whole: bool) -> Written:
    addresses = events = 0
    async for line in lines(engine, whole=whole):
        file.write(orjson.dumps(line) + b"\n")
        addresses += "address" in line
        events += "event" in line
    return Written(addresses, events)


async def lines(engine: Engine, *, whole: bool) -> AsyncIterator[Json]:
    async with engine.snapshot() as tx:
        yield {"berth": "ledger", "format": FORMAT, "at": await tx.now(), "whole": whole}
        async for record in all_records(tx):
            yield record_line(record, whole=whole)
        if whole:
            async for event in all_history(tx):
                yield event_line(event)


def record_line(record: Record, *, whole: bool) -> Json:
    row = record.address
    seal = {
        "key_id": row.seal.key_id,
        "salt": b64encode(row.seal.salt).decode(),
        "digest": b64encode(row.seal.digest).decode(),
    }
    return {
        "address": row.address,
        "pool": row.pool,
        "uid": row.uid,
        "registered_at": row.registered_at,
        "holders": [_entry_line(holder.entry) for holder in record.holders],
        **({"seal": seal} if whole else {}),
    }


def _entry_line(entry: Entry) -> Json:
    who = entry.identity
    return {
        "service_name": who.service_name,
        "namespace_id": who.namespace_id,
        "cluster_id": who.cluster_id,
        "retention_period_days": entry.retention_days,
        "deny_external_cleanup": entry.deny,
        "uid": entry.uid,
        "expires_at": entry.expires_at,
        "pending": entry.pending,
        "marked_by": entry.marked_by,
        "expires_before": entry.expires_before,
    }


def event_line(event: Event) -> Json:
    at, pool, address, name, effect, service, namespace, cluster, detail = event.columns()
    who = {"service_name": service, "namespace_id": namespace, "cluster_id": cluster} if event.who else None
    return {
        "event": name,
        "at": at,
        "pool": pool,
        "of": address,
        "effect": effect,
        "who": who,
        "detail": detail,
    }


def read(path: Path) -> Iterator[Record | Event]:
    """The records and events of a file; UserError names the first line that is wrong."""
    try:
        with opened(path, "rb", gzipped=path.suffix == ".gz") as file:
            yield from _parsed(file, path)
    except (OSError, EOFError) as cause:
        raise UserError(f"{path} cannot be read: {cause}.") from cause


def _parsed(file: Iterable[bytes], path: Path) -> Iterator[Record | Event]:
    for number, line in enumerate(file, 1):
        try:
            parsed = orjson.loads(line)
            if number == 1 and (parsed.get("berth") != "ledger" or parsed.get("format") != FORMAT):
                raise ValueError("not a ledger file of this version")
            if "address" in parsed:
                yield record_of(parsed)
            elif "event" in parsed:
                yield event_of(parsed)
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise UserError(f"{path}, line {number}, cannot be read: {cause}.") from cause


def record_of(line: Json) -> Record:
    seal = line.get("seal")
    sealed = Seal(seal["key_id"], b64decode(seal["salt"]), b64decode(seal["digest"])) if seal else Seal()
    row = AddressRow(line["address"], line["pool"], line["uid"], sealed, line["registered_at"])
    holders = tuple(HolderRow(row.address, row.pool, _entry_of(one)) for one in line["holders"])
    return Record(row, holders)


def _entry_of(line: Json) -> Entry:
    return Entry(
        Identity(line["service_name"], line["namespace_id"], line["cluster_id"]),
        line["retention_period_days"],
        line["deny_external_cleanup"],
        line["uid"],
        line["expires_at"],
        line["pending"],
        line["marked_by"],
        line["expires_before"],
    )


def event_of(line: Json) -> Event:
    who = line["who"]
    identity = Identity(who["service_name"], who["namespace_id"], who["cluster_id"]) if who else None
    return Event(
        line["at"], line["pool"], line["of"], line["event"], line["effect"], identity, line["detail"]
    )


@contextmanager
def opened(path: Path, mode: str, *, gzipped: bool) -> Iterator[BinaryIO]:
    """The plain or packed file; what was written is on disk when it closes."""
    flags = os.O_RDONLY if mode == "rb" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(path, flags, 0o600), mode) as raw:
        if gzipped:
            with gzip.GzipFile(fileobj=raw, mode=mode) as packed:
                yield cast("BinaryIO", packed)
        else:
            yield cast("BinaryIO", raw)
        if mode == "wb":
            raw.flush()
            os.fsync(raw.fileno())
