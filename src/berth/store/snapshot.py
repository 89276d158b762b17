"""The whole ledger as JSON lines, out of one consistent view and back in: backup and restore, export
and import, and the way from SQLite to PostgreSQL. The same lines for both stores.

A backup carries the seals of the secrets (never a secret) and the history; an export leaves the seals
out, so what is imported from one opens to nobody until its secret is replaced. The last line says how
many there are, and a hash of all lines before it: half a file is never taken for a whole one.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from berth.errors import UserError, file_fault
from berth.leasing.holders import NAME_LIMIT, RETENTION_DAYS, Entry, Identity, is_name
from berth.secret import KEY_BYTES, SecretHash
from berth.store.engine import Engine, Transaction
from berth.store.queries import LedgerRecord, all_history, all_records
from berth.store.requests import placed
from berth.store.rows import AddressRow, HistoryRow, HolderRow

FORMAT = 1
PART = ".part"  # the end of a name as long as the file is not complete
TABLES = ("addresses", "holders", "history")
LATEST_MS = 253_402_300_799_999  # the year 9999: what a date can be
MARKED_BY = ("", "service", "cluster", "ror", "cli")
Json = dict[str, Any]


@dataclass(slots=True)
class Counted:
    """How much a file has, and a hash of its lines."""

    addresses: int = 0
    holders: int = 0
    events: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def count(self, line: Json, raw: bytes) -> None:
        self.addresses += "address" in line
        self.holders += len(line["holders"]) if "address" in line else 0
        self.events += "event" in line
        self.digest.update(raw)

    def end_line(self) -> Json:
        return {
            "end": "ledger",
            "addresses": self.addresses,
            "holders": self.holders,
            "events": self.events,
            "sha256": self.digest.hexdigest(),
        }


class Stopped(Exception):
    """The caller wants no more of it."""


def always() -> bool:
    return True


async def write(engine: Engine, path: Path, *, whole: bool, go_on: Callable[[], bool] = always) -> Counted:
    """Write a file only its owner can read; it takes its name when it is complete and on disk."""
    unfinished = path.with_name(path.name + PART)
    try:
        with created(unfinished, gzipped=path.suffix == ".gz") as file:
            written = await _write(engine, file, whole, go_on)
            unfinished.replace(path)
        _sync_folder(path.parent)
    except BlockingIOError as cause:
        raise UserError(f"{path} is being written by another process.") from cause
    except OSError as cause:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise UserError(f"{path} cannot be written: {file_fault(cause)}.") from cause
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return written


async def _write(engine: Engine, file: Output, whole: bool, go_on: Callable[[], bool]) -> Counted:
    counted = Counted()
    async with engine.snapshot() as tx:
        async for line in _lines(tx, whole=whole):
            if not go_on():
                raise Stopped
            raw = orjson.dumps(line) + b"\n"
            file.write(raw)
            counted.count(line, raw)
        await _compare(tx, counted, whole=whole)
    file.write(orjson.dumps(counted.end_line()) + b"\n")
    file.finish()
    return counted


async def _lines(tx: Transaction, *, whole: bool) -> AsyncIterator[Json]:
    yield {"berth": "ledger", "format": FORMAT, "at": await tx.now(), "whole": whole}
    async for record in all_records(tx):
        yield record_line(record, whole=whole)
    if whole:
        async for event in all_history(tx):
            yield event_line(event)


async def _compare(tx: Transaction, counted: Counted, *, whole: bool) -> None:
    """With what the database itself counts in the same view."""
    there = [(await tx.rows(f"SELECT count(*) FROM {name}"))[0][0] for name in TABLES]
    written = [counted.addresses, counted.holders, counted.events]
    if there[: 3 if whole else 2] != written[: 3 if whole else 2]:
        raise UserError(f"the database counts {there} rows, but {written} were written; try again.")


def record_line(record: LedgerRecord, *, whole: bool) -> Json:
    row = record.address
    hashed = {
        "key_id": row.secret_hash.key_id,
        "salt": b64encode(row.secret_hash.salt).decode(),
        "digest": b64encode(row.secret_hash.digest).decode(),
    }
    return {
        "address": row.address,
        "pool": row.pool,
        "uid": row.uid,
        "registered_at": row.registered_at,
        "holders": [_entry_line(holder.entry) for holder in record.holders],
        **({"seal": hashed} if whole else {}),
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


def event_line(event: HistoryRow) -> Json:
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a file must show before it is believed."""

    backup: bool = False  # everything, not an export …
    end: bool = False  # … and the last line, which proves that nothing is missing


def read(path: Path, wanted: Wanted = Wanted()) -> Iterator[LedgerRecord | HistoryRow]:  # noqa: B008
    """The records and events of a file; UserError names the first line that is wrong. Whether the file is
    whole is known only after the last one.
    """
    try:
        with opened(path) as file:
            yield from _parsed(file, path, wanted)
    except (OSError, EOFError, zlib.error) as cause:
        raise UserError(f"{path} cannot be read: {file_fault(cause)}.") from cause


def _parsed(file: Iterable[bytes], path: Path, wanted: Wanted) -> Iterator[LedgerRecord | HistoryRow]:
    counted, ended, number = Counted(), False, 0
    for number, line in enumerate(file, 1):
        try:
            parsed = orjson.loads(line)
            if number == 1:
                _check_head(parsed, wanted)
            if ended:
                raise ValueError("it comes after the last line")
            if "end" in parsed:
                ended = True
                _check_end(parsed, counted)
            elif "address" in parsed:
                yield record_of(parsed)
            elif "event" in parsed:
                yield event_of(parsed)
            if not ended:
                counted.count(parsed, line)
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise UserError(f"{path}, line {number}, cannot be read: {str(cause)[:200]}.") from cause
    if number == 0:
        raise UserError(f"{path} is empty.")
    if wanted.end and not ended:
        raise UserError(
            f"{path} has no last line with counts: it is cut off, or of an older version. If you know "
            "that it is whole, restore it with --allow-unproven."
        )


def _check_head(line: Json, wanted: Wanted) -> None:
    if line.get("berth") != "ledger" or line.get("format") != FORMAT:
        raise ValueError("not a ledger file of this version")
    if wanted.backup and line.get("whole") is not True:
        raise ValueError("this is an export, without seals and history; use `berth ledger import`")


def _check_end(line: Json, counted: Counted) -> None:
    if line != counted.end_line():
        raise ValueError("the lines before it are not those that were written; the file was cut or changed")


def record_of(line: Json) -> LedgerRecord:
    address, pool = placed(text(line, "address"), text(line, "pool"))
    row = AddressRow(address, pool, uid_of(line), _hash_of(line.get("seal")), instant(line, "registered_at"))
    if not isinstance(line["holders"], list) or not line["holders"]:
        raise ValueError("an address without holders would never be freed")
    return LedgerRecord(row, tuple(HolderRow(address, pool, _entry_of(one)) for one in line["holders"]))


def _hash_of(line: Json | None) -> SecretHash:
    """Absent in an export; empty in a backup, where an address came from one."""
    if not line:
        return SecretHash()
    hashed = SecretHash(text(line, "key_id"), _bytes(line, "salt"), _bytes(line, "digest"))
    if hashed != SecretHash() and not (
        is_name(hashed.key_id) and len(hashed.digest) == KEY_BYTES and hashed.salt
    ):
        raise ValueError("seal must have key_id, salt and digest")
    return hashed


def _entry_of(line: Json) -> Entry:
    marked_by = text(line, "marked_by")
    if marked_by not in MARKED_BY:
        raise ValueError("marked_by must be one of service, cluster, ror and cli, or empty")
    return Entry(
        identity_of(line),
        retention_of(line["retention_period_days"]),
        flag(line, "deny_external_cleanup"),
        uid_of(line),
        None if line["expires_at"] is None else instant(line, "expires_at"),
        flag(line, "pending"),
        marked_by,
        None if line["expires_before"] is None else instant(line, "expires_before"),
    )


def event_of(line: Json) -> HistoryRow:
    address, pool = placed(text(line, "of"), text(line, "pool"))
    who = identity_of(line["who"]) if line["who"] else None
    effect = line["effect"]
    if isinstance(effect, bool) or effect not in (-1, 0, 1):
        raise ValueError("effect must be -1, 0 or 1")
    detail = text(line, "detail")
    if not is_name(text(line, "event")) or (detail and not is_name(detail)):
        raise ValueError(f"event and detail have at most {NAME_LIMIT} characters, none a control character")
    return HistoryRow(instant(line, "at"), pool, address, text(line, "event"), int(effect), who, detail)


# Values of a line: what is stored must be what the ledger itself would have stored.


def identity_of(line: Mapping[str, Any]) -> Identity:
    for key in ("service_name", "namespace_id", "cluster_id"):
        if not is_name(text(line, key)):
            raise ValueError(f"{key} must have 1 to {NAME_LIMIT} characters, none a control character")
    return Identity(line["service_name"], line["namespace_id"], line["cluster_id"])


def uid_of(line: Mapping[str, Any]) -> str:
    uid = text(line, "uid")
    if uid and not is_name(uid):
        raise ValueError(f"uid has at most {NAME_LIMIT} characters, none a control character")
    return uid


def retention_of(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in RETENTION_DAYS:
        raise ValueError(f"retention_period_days must be a whole number from 0 to {RETENTION_DAYS[-1]}")
    return value


def text(line: Mapping[str, Any], key: str) -> str:
    if not isinstance(line[key], str):
        raise ValueError(f"{key} must be text")
    return str(line[key])


def instant(line: Mapping[str, Any], key: str) -> int:
    value = line[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LATEST_MS:
        raise ValueError(f"{key} must be a time in milliseconds")
    return value


def flag(line: Mapping[str, Any], key: str) -> bool:
    if not isinstance(line[key], bool):
        raise ValueError(f"{key} must be true or false")
    return bool(line[key])


def _bytes(line: Mapping[str, Any], key: str) -> bytes:
    return b64decode(text(line, key), validate=True)


class Output:
    """A file that is being written. Its lock tells whoever finds it whether the writer still lives."""

    def __init__(self, raw: BinaryIO, *, gzipped: bool) -> None:
        self._raw = raw
        self._packed = gzip.GzipFile(fileobj=raw, mode="wb") if gzipped else None

    def write(self, data: bytes) -> None:
        (self._packed or self._raw).write(data)

    def finish(self) -> None:
        """From now on it is on disk."""
        if self._packed is not None:
            self._packed.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())


@contextmanager
def created(path: Path, *, gzipped: bool) -> Iterator[Output]:
    """BlockingIOError while another process writes it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as raw:
        lock(raw.fileno(), path)
        os.fchmod(raw.fileno(), 0o600)
        raw.truncate(0)
        yield Output(raw, gzipped=gzipped)


def lock(file: int, path: Path) -> None:
    """Be the only one who writes it. BlockingIOError: another does, or has just given it its final name."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), path.stat()):
            raise BlockingIOError
    except FileNotFoundError as cause:
        raise BlockingIOError from cause
    except OSError as cause:
        if isinstance(cause, BlockingIOError):
            raise
        return  # a file system without locks


@contextmanager
def opened(path: Path) -> Iterator[Iterable[bytes]]:
    with path.open("rb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw, mode="rb") as packed:
                yield packed
        else:
            yield raw


def _sync_folder(folder: Path) -> None:
    """So that a power cut does not take the new name away again."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # not every file system can
            os.fsync(place)
    finally:
        os.close(place)
