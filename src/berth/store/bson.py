"""A small reader of BSON, as `mongodump` writes it: documents one after the other, or its archive, where
portions of several collections follow each other. Only the types that upstream's records have; anything
else is refused by name rather than guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

ARCHIVE = b"\x6d\xe2\x99\x81"  # how mongodump's archive begins
MARK = b"\xff\xff\xff\xff"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BadBson(ValueError):
    """Bytes that are not the BSON we read."""


def documents(data: bytes) -> Iterator[dict[str, Any]]:
    at = 0
    while at < len(data):
        document, at = _document(data, at)
        yield document


def archived(data: bytes, collection: str) -> Iterator[dict[str, Any]]:
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
            if wanted:
                document, at = _document(data, at)
                yield document
            else:
                at = _after(data, at)
        at += len(MARK)
    if not complete:
        raise BadBson(f"the archive does not have all of the collection {collection!r}")


def _after(data: bytes, at: int) -> int:
    """Where the document that begins here ends."""
    (size,) = _unpack("<i", data, at)
    if size < 5 or at + size > len(data):
        raise BadBson(f"a document at byte {at} is cut off")
    return int(at + size)


def _document(data: bytes, at: int) -> tuple[dict[str, Any], int]:
    end = _after(data, at)
    if data[end - 1] != 0:
        raise BadBson(f"a document at byte {at} is cut off")
    found: dict[str, Any] = {}
    at += 4
    while at < end - 1:
        kind = data[at]
        name, at = _name(data, at + 1, end)
        found[name], at = _value(kind, data, at, end)
    return found, end


def _value(kind: int, data: bytes, at: int, end: int) -> tuple[Any, int]:
    match kind:
        case 0x01:
            return _unpack("<d", data, at)[0], at + 8
        case 0x02:
            return _string(data, at, end)
        case 0x03:
            return _document(data, at)
        case 0x04:
            document, after = _document(data, at)
            return list(document.values()), after
        case 0x07:
            return data[at : at + 12].hex(), at + 12
        case 0x08:
            return data[at] != 0, at + 1
        case 0x09:
            return EPOCH + timedelta(milliseconds=_unpack("<q", data, at)[0]), at + 8
        case 0x0A:
            return None, at
        case 0x10:
            return _unpack("<i", data, at)[0], at + 4
        case 0x12:
            return _unpack("<q", data, at)[0], at + 8
    raise BadBson(f"a value of type 0x{kind:02x} at byte {at} is not read here")


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
