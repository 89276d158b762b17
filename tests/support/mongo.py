"""Records as upstream's MongoDB has them: BSON, mongodump's archive, and the lines of mongoexport."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

KEY, START = b"k" * 32, b"i" * 16
EXPIRES = 1_750_000_000_000


def sealed(secret: str) -> str:
    encryptor = Cipher(AES(KEY), CTR(START)).encryptor()
    return base64.b64encode(encryptor.update(secret.encode()) + encryptor.finalize()).decode()


def element(kind: int, name: str, raw: bytes) -> bytes:
    return bytes([kind]) + name.encode() + b"\0" + raw


def text(value: str) -> bytes:
    raw = value.encode() + b"\0"
    return struct.pack("<i", len(raw)) + raw


def document(*elements: bytes) -> bytes:
    body = b"".join(elements) + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def service(name: str, *more: bytes) -> bytes:
    """`more` may have a name anew: its last value is the one that is read."""
    return document(
        element(2, "service_name", text(name)),
        element(2, "namespace_id", text("n")),
        element(2, "cluster_id", text("c")),
        element(0x10, "retention_period_days", struct.pack("<i", 3)),
        element(8, "deny_external_cleanup", b"\x01"),
        *more,
    )


def dump(address: str = "83.118.168.10/32", *services: bytes) -> bytes:
    """One record; without services those of `x`, and of `y` that expires."""
    both = (service("x"), service("y", element(9, "expires_at", struct.pack("<q", EXPIRES))))
    listed = [element(3, str(number), one) for number, one in enumerate(services or both)]
    return document(
        element(7, "_id", bytes(range(12))),
        element(2, "secret", text(sealed("SuperSecret"))),
        element(2, "zone", text("inet")),
        element(2, "address", text(address)),
        element(2, "ip_family", text("ipv4")),
        element(0x12, "netbox_id", struct.pack("<q", 7)),
        element(4, "services", document(*listed)),
    )


def exported(address: str = "83.118.168.10/32", oid: bytes = bytes(range(12)), zone: Any = "inet") -> str:
    line: dict[str, Any] = {
        "_id": {"$oid": oid.hex()},
        "secret": sealed("SuperSecret"),
        "zone": zone,
        "address": address,
        "ip_family": "ipv4",
        "services": [
            {
                "service_name": name,
                "namespace_id": "n",
                "cluster_id": "c",
                "retention_period_days": {"$numberInt": "3"},
                "deny_external_cleanup": True,
                **({"expires_at": {"$date": "2025-06-15T15:06:40Z"}} if name == "y" else {}),
            }
            for name in ("x", "y")
        ],
    }
    return json.dumps(line) + "\n"


def archive() -> bytes:
    """As `mongodump --archive` writes it, with another collection's portion before and after ours."""
    mark = b"\xff" * 4

    def portion(collection: str, ends: bool, *documents: bytes) -> bytes:
        names = (element(2, "db", text("ipam")), element(2, "collection", text(collection)))
        end = (element(8, "EOF", bytes([ends])), element(0x12, "CRC", struct.pack("<q", 0)))
        return document(*names, *end) + b"".join(documents) + mark

    prelude = document(element(0x10, "concurrent_collections", struct.pack("<i", 4)))
    about = document(element(2, "collection", text("addresses")), element(2, "metadata", text("{}")))
    other = document(element(0x13, "a type we do not read", bytes(16)))
    return (
        b"\x6d\xe2\x99\x81" + prelude + about + mark
        + portion("others", False, other) + portion("addresses", False, dump())
        + portion("others", True) + portion("addresses", True)
    )  # fmt: skip
