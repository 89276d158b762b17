"""A small reader of BSON, as `mongodump` writes it: documents one after the other, or its archive, where
portions of several collections follow each other. Only the types that upstream's records have; anything
else is refused by name rather than guessed. A document whose bounds are right and whose inside is not comes
as `Unread`, so that one odd record is told and the others are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

ARCHIVE = b"\x6d\xe2\x99\x81"  # how mongodump's archive begins
MARK = b"\xff\xff\xff\xff"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEPTH = 20  # upstream's records have three levels


class BadBson(ValueError):
    """Bytes that are not the BSON we read."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A document that is there and cannot be read."""

    why: str


def documents(data: bytes) -> Iterator[dict[str, Any] | Unread]:
    at = 0
    while at < len(data):
        end = _after(data, at)
        yield _readable(data, at)
        at = end


def _readable(data: bytes, at: int) -> dict[str, Any] | Unread:
    try:
        return _document(data, at)[0]
    except BadBson as cause:
        return Unread(str(cause))


def archived(data: bytes, collection: str) -> Iterator[dict[str, Any] | Unread]:
    """The documents of one collection: magic, a prelude up to a mark, then portions, each with a header that
    names its collection, and up to a mark.
    """
    at = len(ARCHIVE)
    while not data.startswith(MARK, at):
        at = _after(data, at)
    at, complete = at + len(MARK), False
    while at < len(data):
        header, at = _document(data, at)
        wanted = header.get("collection") == collection
        complete = complete or (wanted and bool(header.get("EOF")))
        while not data.startswith(MARK, at):
            end = _after(data, at)
            if wanted:
                yield _readable(data, at)
            at = end
        at += len(MARK)
    if not complete:
        raise BadBson(f"the archive does not have all of the collection {collection!r}")


def _after(data: bytes, at: int) -> int:
    """Where the document that begins here ends."""
    (size,) = _unpack("<i", data, at)
    if size < 5 or at + size > len(data):
        raise BadBson(f"a document at byte {at} is cut off")
    return int(at + size)


def _document(data: bytes, at: int, depth: int = 1) -> tuple[dict[str, Any], int]:
    end = _after(data, at)
    if data[end - 1] != 0:
        raise BadBson(f"a document at byte {at} is cut off")
    if depth > DEPTH:
        raise BadBson(f"a document at byte {at} is nested more than {DEPTH} deep")
    found: dict[str, Any] = {}
    at += 4
    while at < end - 1:
        kind = data[at]
        name, at = _name(data, at + 1, end)
        found[name], at = _value(kind, data, (at, end), depth)
    return found, end


def _value(kind: int, data: bytes, where: tuple[int, int], depth: int) -> tuple[Any, int]:
    at, end = where
    match kind:
        case 0x01:
            return _unpack("<d", data, at)[0], at + 8
        case 0x02:
            return _string(data, at, end)
        case 0x03:
            return _document(data, at, depth + 1)
        case 0x04:
            document, after = _document(data, at, depth + 1)
            return list(document.values()), after
        case 0x07:
            return data[at : at + 12].hex(), at + 12
        case 0x08:
            return data[at] != 0, at + 1
        case 0x09:
            return _date(_unpack("<q", data, at)[0], at), at + 8
        case 0x0A:
            return None, at
        case 0x10:
            return _unpack("<i", data, at)[0], at + 4
        case 0x12:
            return _unpack("<q", data, at)[0], at + 8
    raise BadBson(f"a value of type 0x{kind:02x} at byte {at} is not read here")


def _date(milliseconds: int, at: int) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError as cause:
        raise BadBson(f"the date at byte {at} is out of range") from cause


def _string(data: bytes, at: int, end: int) -> tuple[str, int]:
    (size,) = _unpack("<i", data, at)
    stop = at + 4 + size
    if size < 1 or stop > end:
        raise BadBson(f"a text at byte {at} is cut off")
    try:
        return data[at + 4 : stop - 1].decode(), stop
    except UnicodeDecodeError as cause:
        raise BadBson(f"a text at byte {at} is not UTF-8") from cause


def _name(data: bytes, at: int, end: int) -> tuple[str, int]:
    stop = data.find(b"\0", at, end)
    if stop < 0:
        raise BadBson(f"a name at byte {at} is cut off")
    return data[at:stop].decode(errors="replace"), stop + 1


def _unpack(form: str, data: bytes, at: int) -> tuple[Any, ...]:
    try:
        return struct.unpack_from(form, data, at)
    except struct.error as cause:
        raise BadBson(f"a number at byte {at} is cut off") from cause
