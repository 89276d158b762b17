"""Every metric's name and meaning, in one place. `run.py` builds one `Metrics` and passes it on; there is no
default registry, so two operators in one process (or two tests) never see each other's numbers.

Whoever measures calls a verb below (`decided`, `reconciled`, `reviewed`, …); nobody else touches a label.
Every label is bounded: words come from our own tables, and a label that meets more distinct values than its
bound files the rest under `other`. A pool's series go when the pool goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

OTHER = "other"
FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class PoolKey(NamedTuple):
    """Which pool a series is about; the namespace is empty for pools of cluster scope."""

    dialect: str
    namespace: str
    pool: str


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """A pool's numbers. They may exceed 2^64; Prometheus keeps them as floats."""

    total: int
    used: int
    free: int
    reserved: int


class Bounded:
    """Lets the first `limit` distinct values of a label through and files the rest under `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._seen:
            return value
        if len(self._seen) >= self._limit:
            return OTHER
        self._seen.add(value)
        return value


class Metrics:
    """The registry and the verbs that fill it."""

    def __init__(self, registry: CollectorRegistry | None = None, *, pool_limit: int = 5000) -> None:
        self.registry = registry or CollectorRegistry()
        self._pool_limit = pool_limit
        self._pools: set[PoolKey] = set()
        self._unlisted: set[PoolKey] = set()
        self._reason = Bounded(100)
        self._webhook = Bounded(100)
        self._build_pools()
        self._build_work()
        self._build_edges()
        self._build_ipam()

    def _build_pools(self) -> None:
        of_pool = PoolKey._fields
        gauge = self._gauge
        self._total = gauge("berth_pool_addresses", "Addresses a pool spans, exclusions left out.", of_pool)
        self._used = gauge("berth_pool_addresses_used", "Addresses of a pool that are leased.", of_pool)
        self._free = gauge("berth_pool_addresses_free", "Addresses any claim may still get.", of_pool)
        self._reserved = gauge(
            "berth_pool_addresses_reserved", "Addresses kept for a named holder and not leased.", of_pool
        )
        self._unlisted_pools = gauge("berth_pools_unlisted", "Pools past the limit, without series.", ())
        self._claims = gauge("berth_claims", "Claims by state.", ("dialect", "state"))
        self._decisions = self._counter(
            "berth_decisions",
            "Decisions; the reason is empty unless refused.",
            ("dialect", "result", "reason"),
        )

    def _build_work(self) -> None:
        self._reconcile_seconds = self._histogram(
            "berth_reconcile_seconds", "How long one reconcile took.", ("controller", "result")
        )
        self._queue_depth = self._gauge(
            "berth_queue_depth", "Refs that wait to be worked on.", ("controller",)
        )
        self._leader = self._gauge("berth_leader", "1 while this process may write, else 0.", ())
        self._kube_seconds = self._histogram(
            "berth_kube_request_seconds", "Requests to the API server.", ("verb", "code")
        )

    def _build_edges(self) -> None:
        self._webhook_seconds = self._histogram(
            "berth_webhook_seconds", "How long an admission review took.", ("webhook",)
        )
        self._webhooks = self._counter(
            "berth_webhook_requests",
            "Admission reviews: allowed, patched, denied, bad, timeout or error.",
            ("webhook", "result"),
        )
        self._events_written = self._counter("berth_events_written", "Kubernetes Events written.", ())
        self._events_dropped = self._counter(
            "berth_events_dropped", "Kubernetes Events given up: flood, object or error.", ("cause",)
        )
        self._certificate = self._gauge(
            "berth_webhook_certificate_expiry_timestamp_seconds", "When the serving certificate ends.", ()
        )

    def _build_ipam(self) -> None:
        self._ipam_seconds = self._histogram(
            "berth_ipam_api_seconds", "Calls of the IPAM-API; code 0 is no answer.", ("call", "code")
        )
        self._records_written = self._counter(
            "berth_records_written", "Records of registrations: create, change or delete.", ("verb",)
        )
        self._differences = self._gauge(
            "berth_inventory_differences",
            "Addresses on which the last inventory and the IPAM-API disagreed.",
            ("kind",),
        )
        self._frozen = self._gauge(
            "berth_cluster_frozen", "1 while another operator speaks for this cluster, too.", ()
        )
        self._braked = self._gauge(
            "berth_releases_braked", "Releases that wait for a person, being too many at once.", ()
        )

    def _gauge(self, name: str, meaning: str, labels: Sequence[str]) -> Gauge:
        return Gauge(name, meaning, labels, registry=self.registry)

    def _counter(self, name: str, meaning: str, labels: Sequence[str]) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, labels: Sequence[str]) -> Histogram:
        return Histogram(name, meaning, labels, registry=self.registry, buckets=FAST)

    def pool(self, key: PoolKey, counts: PoolCounts) -> None:
        """Show a pool's numbers; pools past the limit are counted, not listed."""
        if not self._listed(key):
            return
        self._total.labels(*key).set(counts.total)
        self._used.labels(*key).set(counts.used)
        self._free.labels(*key).set(counts.free)
        self._reserved.labels(*key).set(counts.reserved)

    def _listed(self, key: PoolKey) -> bool:
        if key in self._pools:
            return True
        room = len(self._pools) < self._pool_limit
        (self._pools if room else self._unlisted).add(key)
        if room:
            self._unlisted.discard(key)
        self._unlisted_pools.set(len(self._unlisted))
        return room

    def pool_gone(self, key: PoolKey) -> None:
        """Take a pool's series away; unknown pools are no error."""
        self._unlisted.discard(key)
        self._unlisted_pools.set(len(self._unlisted))
        if key not in self._pools:
            return
        self._pools.remove(key)
        for gauge in (self._total, self._used, self._free, self._reserved):
            gauge.remove(*key)

    def claims(self, dialect: str, state: str, count: int) -> None:
        self._claims.labels(dialect, state).set(count)

    def decided(self, dialect: str, result: str, reason: str = "") -> None:
        self._decisions.labels(dialect, result, self._reason(reason)).inc()

    def reconciled(self, controller: str, result: str, seconds: float) -> None:
        self._reconcile_seconds.labels(controller, result).observe(seconds)

    def queue_depth(self, controller: str, depth: int) -> None:
        self._queue_depth.labels(controller).set(depth)

    def leading(self, leads: bool) -> None:
        self._leader.set(leads)

    def kube_request(self, verb: str, code: int, seconds: float) -> None:
        """One request to the API server; code 0 stands for no answer."""
        self._kube_seconds.labels(verb, str(code)).observe(seconds)

    def reviewed(self, webhook: str, result: str, seconds: float) -> None:
        name = self._webhook(webhook)
        self._webhook_seconds.labels(name).observe(seconds)
        self._webhooks.labels(name, result).inc()

    def event_written(self) -> None:
        self._events_written.inc()

    def event_dropped(self, cause: str, count: int = 1) -> None:
        self._events_dropped.labels(cause).inc(count)

    def certificate_ends(self, timestamp: float) -> None:
        self._certificate.set(timestamp)

    def ipam_call(self, call: str, code: int, seconds: float) -> None:
        self._ipam_seconds.labels(call, str(code)).observe(seconds)

    def record_written(self, verb: str, count: int = 1) -> None:
        self._records_written.labels(verb).inc(count)

    def inventory_differs(self, kind: str, count: int) -> None:
        self._differences.labels(kind).set(count)

    def frozen(self, is_frozen: bool) -> None:
        self._frozen.set(is_frozen)

    def braked(self, count: int) -> None:
        self._braked.set(count)
