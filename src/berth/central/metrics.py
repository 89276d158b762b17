"""Every metric of the IPAM-API, its name and meaning. One registry per process, handed around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from berth.leasing.usage import Usage
from berth.store.inventory import Comparison
from berth.store.operators import SilentCluster
from berth.store.requests import family_of, zone_of

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
POOL = ("zone", "family")


class ApiMetrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._build_requests()
        self._build_pools()
        self._build_neighbours()

    def _build_requests(self) -> None:
        labels = ("route", "method", "status")
        self._requests = self._counter("berth_api_requests", "Requests by route, method and status.", labels)
        self._seconds = self._histogram("berth_api_request_seconds", "How long requests took.", ("route",))
        self._refusals = self._counter("berth_api_refusals", "Refusals by reason word.", ("reason",))
        self._inventories = self._counter(
            "berth_inventory_differences", "What operators and the ledger disagree on.", ("kind",)
        )
        self.frozen = self._gauge(
            "berth_clusters_frozen",
            "Clusters for which two operators speak; nothing of them can be released.",
            (),
        )
        self.reloads = self._counter("berth_reloads", "Files taken, or refused, while running.", ("result",))
        self.reload_refused = self._gauge(
            "berth_reload_refused",
            "Kinds of files that cannot be used as they are now; the old ones are.",
            (),
        )
        self._silent = self._gauge(
            "berth_clusters_silent", "Clusters with addresses whose operator is not heard any more.", ()
        )
        self._silent_seconds = self._gauge(
            "berth_clusters_silent_seconds", "How long the longest silent of them has not been heard.", ()
        )
        self._waiting = self._gauge("berth_api_waiting", "Requests that wait for the database.", ())

    def _build_pools(self) -> None:
        self._total = self._gauge("berth_zone_addresses", "Addresses of a zone.", POOL)
        self._used = self._gauge("berth_zone_addresses_used", "Addresses of a zone that are held.", POOL)
        self._free = self._gauge("berth_zone_addresses_free", "Addresses anyone may still get.", POOL)
        self._outside = self._gauge(
            "berth_zone_addresses_outside", "Addresses still held that left the zone.", POOL
        )
        self._states = self._gauge(
            "berth_zone_addresses_by_state",
            "Held addresses: in_use, retained or lapsed; told by the replica that sweeps.",
            (*POOL, "state"),
        )
        self._entries = self._gauge(
            "berth_zone_entries",
            "Entries: active, pending, retained or lapsed; told by the replica that sweeps.",
            (*POOL, "state"),
        )

    def _build_neighbours(self) -> None:
        self._sweep_seconds = self._histogram("berth_sweep_seconds", "How long a sweep took.", ())
        self._swept = self._counter("berth_sweep_freed", "Addresses freed by the sweep.", ())
        self._held_back = self._counter("berth_sweep_held_back", "Sweeps that did nothing.", ("reason",))
        self.clock_jumped = self._gauge(
            "berth_sweep_clock_jumped", "1 while the database's clock, or our own, is not trusted.", ()
        )
        self.clock_doubted = self._gauge(
            "berth_sweep_clock_doubted_seconds",
            "By how much later everything is freed: time between two boots that nobody measured.",
            (),
        )
        self.backup_every = self._gauge(
            "berth_backup_every_seconds", "How often a backup is due; 0: never.", ()
        )
        self.backup_at = self._gauge(
            "berth_backup_last_success_timestamp_seconds",
            "When the last backup by the clock was made, by whichever replica; 0: never.",
            (),
        )
        self.backup_seconds = self._gauge("berth_backup_seconds", "How long the last one took here.", ())
        self.backup_failures = self._counter("berth_backup_failures", "Backups that failed.", ())
        self.ror_connected = self._gauge("berth_ror_connected", "1 while the event stream is open.", ())
        self.ror_events = self._counter(
            "berth_ror_events", "Events by type and by what became of them.", ("type", "result")
        )
        self.hec_queue = self._gauge("berth_splunk_queue", "Events that wait for Splunk.", ())
        self.hec_sent = self._counter("berth_splunk_sent", "Events Splunk has taken.", ())
        self.hec_dropped = self._counter("berth_splunk_dropped", "Events given up: the queue is full.", ())
        self.outbox = self._gauge("berth_netbox_outbox", "Changes that wait for NetBox.", ())
        self.netbox_failures = self._counter("berth_netbox_failures", "Calls NetBox did not take.", ())

    def _gauge(self, name: str, meaning: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(name, meaning, labels, registry=self.registry)

    def _counter(self, name: str, meaning: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, labels: tuple[str, ...]) -> Histogram:
        return Histogram(name, meaning, labels, registry=self.registry, buckets=SECONDS)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def refused(self, reason: str) -> None:
        self._refusals.labels(reason).inc()

    def compared(self, result: Comparison) -> None:
        """One report of an operator."""
        for kind in ("adopted", "missing", "unknown", "conflict"):
            self._inventories.labels(kind).inc(len(getattr(result, kind)))

    def silent(self, now: int, clusters: Sequence[SilentCluster]) -> None:
        """The oldest first."""
        self._silent.set(len(clusters))
        self._silent_seconds.set((now - clusters[0].seen_at) / 1000 if clusters else 0)

    def swept(self, seconds: float, freed: int, held_back: str) -> None:
        if held_back:
            self._held_back.labels(held_back).inc()
        else:
            self._sweep_seconds.observe(seconds)
            self._swept.inc(freed)
        self.clock_jumped.set(held_back in ("ClockJumped", "ClocksApart"))

    def pools(self, usage: Mapping[str, Usage], waiting: int) -> None:
        self._waiting.set(waiting)
        for key, numbers in usage.items():
            labels = (zone_of(key), f"ipv{family_of(key)}")
            self._total.labels(*labels).set(numbers.total)
            self._used.labels(*labels).set(numbers.used)
            self._free.labels(*labels).set(numbers.free)
            self._outside.labels(*labels).set(numbers.outside)

    def states(
        self, addresses: Mapping[tuple[str, str], int], entries: Mapping[tuple[str, str], int]
    ) -> None:
        """Counts by pool and state, as the database has them."""
        for gauge, counts in ((self._states, addresses), (self._entries, entries)):
            gauge.clear()
            for (key, state), count in counts.items():
                gauge.labels(zone_of(key), f"ipv{family_of(key)}", state).set(count)

    def text(self) -> bytes:
        return generate_latest(self.registry)
