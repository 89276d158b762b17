"""May this pool or claim be worked on now? Cluster linkage, pause and watch filter, decided here once.

Paused means untouched: by `spec.paused` or the annotation on the Cluster, or the annotation on pool or claim
(its presence counts, whatever its value).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from berth.control.cache import Cache
from berth.dialects.metal3 import kinds
from berth.kube import meta

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Linkage:
    """What a pool's `clusterName` leads to."""

    named: bool
    cluster: Object | None

    @property
    def missing(self) -> bool:
        return self.named and self.cluster is None

    @property
    def paused(self) -> bool:
        return self.cluster is not None and is_cluster_paused(self.cluster)


class Gate:
    def __init__(self, clusters: Cache, watch_filter: str = "") -> None:
        self._clusters = clusters
        self._watch_filter = watch_filter

    def is_watched(self, obj: Object) -> bool:
        return not self._watch_filter or meta.labels(obj).get(kinds.WATCH_LABEL) == self._watch_filter

    def linkage(self, pool: Object) -> Linkage:
        return self.cluster(pool["metadata"]["namespace"], (pool.get("spec") or {}).get("clusterName"))

    def cluster(self, namespace: str, name: str | None) -> Linkage:
        return Linkage(bool(name), self._clusters.get(namespace, name) if name else None)


def is_paused(obj: Object) -> bool:
    return kinds.PAUSED in meta.annotations(obj)


def is_cluster_paused(cluster: Object) -> bool:
    return bool((cluster.get("spec") or {}).get("paused")) or is_paused(cluster)
