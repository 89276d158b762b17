"""Upstream's MongoDB records into ours: a BSON dump of the collection `addresses`, an archive that has it
(upstream's `mongo-backup` makes one), or JSON lines as `mongoexport` writes them; each plain or gzipped.
The secrets are opened once, with upstream's key and start value, and sealed as ours.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from berth.errors import UserError, file_fault
from berth.leasing.holders import Entry
from berth.net.host import canonical
from berth.secret import Pepper, Secret, SecretHash
from berth.store import bson
from berth.store.queries import LedgerRecord
from berth.store.requests import placed, pool_key
from berth.store.rows import AddressRow, HolderRow
from berth.store.snapshot import LATEST_MS, identity_of, retention_of, text, uid_of

GZIP = b"\x1f\x8b"
Found = Mapping[str, Any] | bytes | bson.Unread  # of BSON, or of a JSON list; a line of JSON; what is odd
# What a document of any shape can raise: infinite numbers, far dates, depths, absent and mistyped fields.
ODD = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class UpstreamKey:
    """`enc_key` and `enc_iv` of upstream's encryption file."""

    key: bytes
    start: bytes

    def __repr__(self) -> str:
        return "UpstreamKey(***)"

    def opened(self, text: str) -> Secret:
        decryptor = Cipher(AES(self.key), CTR(self.start)).decryptor()
        plain = decryptor.update(base64.b64decode(text, validate=True)) + decryptor.finalize()
        return Secret(plain.decode())


def load_key(path: Path) -> UpstreamKey:
    try:
        found = orjson.loads(path.read_bytes())
        key, start = found["enc_key"].encode(), found["enc_iv"].encode()
    except (OSError, orjson.JSONDecodeError, KeyError, AttributeError, TypeError) as cause:
        raise UserError(f"{path} is not upstream's encryption file (enc_key and enc_iv).") from cause
    if len(key) not in (16, 24, 32) or len(start) != 16:
        raise UserError(f"{path}: enc_key must have 16, 24 or 32 bytes and enc_iv 16.")
    return UpstreamKey(key, start)


@dataclass(slots=True)
class Dump:
    """The records of a dump. What cannot be ours (upstream lets a net be registered), or cannot be read, goes
    to `left_out` by its number; a secret that does not open ends it all, since then the key is wrong.
    """

    path: Path
    key: UpstreamKey
    pepper: Pepper
    now: int
    left_out: list[str] = field(default_factory=list)

    def records(self) -> Iterator[LedgerRecord]:
        for number, found in enumerate(self._documents(), 1):
            try:
                document = _whole(found)
                if document["services"]:  # without entries upstream was about to free it
                    yield _record(document, self._hashed(document["secret"], number), self.now)
            except ODD as cause:
                self.left_out.append(f"record {number} ({type(cause).__name__}: {cause})"[:200])

    def _documents(self) -> Iterator[Found]:
        try:
            data = self.path.read_bytes()
            yield from _documents(gzip.decompress(data) if data.startswith(GZIP) else data)
        except (OSError, EOFError, zlib.error) as cause:
            raise UserError(f"{self.path} cannot be read: {file_fault(cause)}.") from cause
        except bson.BadBson as cause:
            raise UserError(f"{self.path} is no BSON dump: {cause}.") from cause
        except ValueError as cause:
            raise UserError(f"{self.path} is neither BSON nor JSON lines.") from cause

    def _hashed(self, sealed: str, number: int) -> SecretHash:
        try:
            return self.pepper.hash(self.key.opened(sealed))
        except ValueError as cause:
            raise UserError(
                f"{self.path}, record {number}: its secret does not open; is it the right key?"
            ) from cause


def _documents(data: bytes) -> Iterator[Found]:
    if data.lstrip()[:1] in (b"{", b"["):
        text = data.strip()
        yield from orjson.loads(text) if text.startswith(b"[") else text.splitlines()
    elif data.startswith(bson.ARCHIVE):
        yield from bson.archived(data, "addresses")
    else:
        yield from bson.documents(data)


def _whole(found: Found) -> dict[str, Any]:
    """One document as plain values. ValueError, or another of `ODD`, says what is wrong with it."""
    if isinstance(found, bson.Unread):
        raise ValueError(found.why)
    document = _plain(orjson.loads(found) if isinstance(found, bytes) else found)
    if not isinstance(document, dict):
        raise ValueError("not a document")
    return document


def _plain(value: Any) -> Any:
    """Extended JSON ({"$oid": …}, {"$date": …}, {"$numberInt": …}) as plain values."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (name, inner), *_ = value.items()
        if name in ("$oid", "$numberInt", "$numberLong", "$numberDouble"):
            return inner if name == "$oid" else int(float(inner))
        if name == "$date":
            return _date(_plain(inner))
    return {key: _plain(one) for key, one in value.items()}


def _date(value: Any) -> datetime:
    if isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC)
    return datetime.fromisoformat(str(value).replace("Z", "+00:00"))


def _record(document: Mapping[str, Any], hashed: SecretHash, now: int) -> LedgerRecord:
    family, address = canonical(document["address"])
    pool = placed(address, pool_key(text(document, "zone"), family))[1]
    row = AddressRow(address, pool, uid_of({"uid": str(document["_id"])}), hashed, now)
    return LedgerRecord(row, tuple(HolderRow(address, pool, _entry(one)) for one in document["services"]))


def _entry(service: Mapping[str, Any]) -> Entry:
    who = identity_of(service)
    ends = service.get("expires_at")
    ends_ms = (
        None
        if ends is None
        else round((ends if isinstance(ends, datetime) else _date(ends)).timestamp() * 1000)
    )
    if ends_ms is not None and not 0 <= ends_ms <= LATEST_MS:
        raise ValueError("expires_at is out of range")
    days = service.get("retention_period_days") or 0
    whole = int(days) if isinstance(days, float) and days.is_integer() else days
    deny = bool(service.get("deny_external_cleanup"))
    return Entry(who, retention_of(whole), deny, expires_at=ends_ms)
