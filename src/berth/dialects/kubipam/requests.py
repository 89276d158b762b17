"""The IPAMRequests as last seen: found by range and by UID, and which of them have gone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from berth.control.cache import Cache
from berth.dialects.kubipam.translate import block_of, range_of, referred
from berth.kube import meta
from berth.net import Block

Object = dict[str, Any]
REMEMBERED = 20_000

INDEXES = {"range": referred, "uid": lambda request: (meta.uid(request),)}


class Requests:
    """Facts about requests, by UID. Both kinds stay true once they are, unless a backup is restored."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self._gone: OrderedDict[str, None] = OrderedDict()

    def find(self, uid: str) -> Object | None:
        found = self.cache.by("uid", uid)
        return found[0] if found else None

    def granted(self, uid: str) -> Block | None:
        found = self.find(uid)
        return None if found is None else block_of(found)

    def is_gone(self, uid: str) -> bool:
        """Was it seen to go? A UID that was never seen is not gone: the watch may be late."""
        return uid in self._gone

    def came(self, uid: str) -> None:
        """It is there. A restored backup brings back even those that were seen to go."""
        self._gone.pop(uid, None)

    def rewound(self) -> None:
        """A backup was restored: whoever was seen to go may be there again, before the watch tells."""
        self._gone.clear()

    def left(self, uid: str) -> None:
        self._gone[uid] = None
        while len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)

    def referring(self, key: str) -> list[Object]:
        return self.cache.by("range", key)

    def holders(self, key: str) -> Iterable[tuple[str, Block]]:
        return holders(self.referring(key), key)


def holders(requests: Iterable[Object], key: str) -> Iterable[tuple[str, Block]]:
    """UID and block of each that holds a block of this range."""
    for request in requests:
        block = block_of(request)
        if block is not None and range_of(request) == key:
            yield meta.uid(request), block
