"""Reports of clusters of which the ledger has nothing. Anybody can invent such a cluster, so nothing of it is
written down: this process remembers the newest ones, which is enough to see a report twice (after a restore
the ledger may have lost all of a cluster), and to know who says that it leaves.
"""

from __future__ import annotations

from collections import OrderedDict

from berth.store.operators import Beat
from berth.store.sighting import Sighting

MOST = 1_000


class Newcomers:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._heard: OrderedDict[tuple[str, str], tuple[int, str]] = OrderedDict()

    def heard(self, beat: Beat, missing: Sighting) -> Sighting | None:
        """As `operators.heard`."""
        key = (beat.cluster_id, beat.epoch)
        sequence, before = self._heard.get(key, (0, "[]"))
        if sequence >= beat.sequence:
            return None
        self._heard[key] = (beat.sequence, missing.text())
        self._heard.move_to_end(key)
        if len(self._heard) > self._most:
            self._heard.popitem(last=False)
        return Sighting.read(before)

    def know(self, beat: Beat) -> bool:
        return (beat.cluster_id, beat.epoch) in self._heard

    def forget(self, beat: Beat) -> None:
        """It has something now, and stands in the ledger."""
        self._heard.pop((beat.cluster_id, beat.epoch), None)

    def __len__(self) -> int:
        return len(self._heard)
