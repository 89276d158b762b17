"""The whole ledger as JSON lines, out of one consistent view and back in: backup and restore, export
and import, and the way from SQLite to PostgreSQL. The same lines for both stores.

A backup carries the seals of the secrets (never a secret) and the history; an export leaves the seals
out, so what is imported from one opens to nobody until its secret is replaced.
"""

from __future__ import annotations

import gzip
import os
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from berth.errors import UserError, file_fault
from berth.leasing.holders import Entry, Identity
from berth.store.engine import Engine
from berth.store.hosts import placed
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
        raise UserError(f"{path} cannot be read: {file_fault(cause)}.") from cause


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
    sealed = Seal(text(seal, "key_id"), _bytes(seal, "salt"), _bytes(seal, "digest")) if seal else Seal()
    address, pool = placed(text(line, "address"), text(line, "pool"))
    row = AddressRow(address, pool, text(line, "uid"), sealed, number(line, "registered_at"))
    if not line["holders"]:
        raise ValueError("an address without holders would never be freed")
    return Record(row, tuple(HolderRow(address, pool, _entry_of(one)) for one in line["holders"]))


def _entry_of(line: Json) -> Entry:
    return Entry(
        identity_of(line),
        number(line, "retention_period_days"),
        flag(line, "deny_external_cleanup"),
        text(line, "uid"),
        _instant(line, "expires_at"),
        flag(line, "pending"),
        text(line, "marked_by"),
        _instant(line, "expires_before"),
    )


def identity_of(line: Mapping[str, Any]) -> Identity:
    return Identity(text(line, "service_name"), text(line, "namespace_id"), text(line, "cluster_id"))


def event_of(line: Json) -> Event:
    address, pool = placed(text(line, "of"), text(line, "pool"))
    who = identity_of(line["who"]) if line["who"] else None
    effect = number(line, "effect")
    if effect not in (-1, 0, 1):
        raise ValueError("effect must be -1, 0 or 1")
    return Event(number(line, "at"), pool, address, text(line, "event"), effect, who, text(line, "detail"))


# Values of a line: what is stored must be what the ledger itself would have stored.


def text(line: Mapping[str, Any], key: str) -> str:
    if not isinstance(line[key], str):
        raise ValueError(f"{key} must be text")
    return str(line[key])


def number(line: Mapping[str, Any], key: str) -> int:
    value = line[key]
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError(f"{key} must be a whole number")
    return value


def flag(line: Mapping[str, Any], key: str) -> bool:
    if not isinstance(line[key], bool):
        raise ValueError(f"{key} must be true or false")
    return bool(line[key])


def _instant(line: Mapping[str, Any], key: str) -> int | None:
    return None if line[key] is None else number(line, key)


def _bytes(line: Mapping[str, Any], key: str) -> bytes:
    return b64decode(text(line, key), validate=True)


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
