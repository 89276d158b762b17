"""What a report listed and the ledger did not have, remembered until the next report in a few kilobytes: the
items fall into buckets, and each bucket is kept as one digest. An item was seen twice if its bucket is the
same in both reports; one that came or went meanwhile delays only those in its own bucket.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

BUCKETS = 256
DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Sighting:
    count: int = 0
    buckets: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Iterable[str]) -> Sighting:
        found: dict[int, list[str]] = {}
        for item in sorted(set(items)):
            found.setdefault(_bucket(item), []).append(item)
        count = sum(map(len, found.values()))
        return cls(count, {bucket: _digest(items) for bucket, items in found.items()})

    def confirms(self, earlier: Sighting, item: str) -> bool:
        """Whether the report before this one had the item too."""
        bucket = _bucket(item)
        return bucket in self.buckets and self.buckets[bucket] == earlier.buckets.get(bucket)

    def text(self) -> str:
        """A JSON list, as earlier versions wrote their items; theirs are never equal to ours."""
        kept = [f"{bucket}:{digest}" for bucket, digest in self.buckets.items()]
        return orjson.dumps([f"={self.count}", *kept] if kept else []).decode()

    @classmethod
    def read(cls, text: str) -> Sighting:
        kept = orjson.loads(text)
        if not kept or not kept[0].startswith("="):
            return cls(len(kept))
        pairs = (one.partition(":") for one in kept[1:])
        return cls(int(kept[0][1:]), {int(bucket): digest for bucket, _, digest in pairs})


def _bucket(item: str) -> int:
    return hashlib.blake2b(item.encode(), digest_size=1).digest()[0] % BUCKETS


def _digest(items: list[str]) -> str:
    return hashlib.blake2b("\n".join(items).encode(), digest_size=DIGEST_BYTES).hexdigest()
