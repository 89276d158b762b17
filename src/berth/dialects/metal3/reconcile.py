"""What is watched and what wakes what.

IPPool changed ──────────► the pool; its unsettled claims, if its spec, pause or deletion changed
IPClaim, IPAddressClaim ─► the claim
IPAddress of either API ─► the pool's space and status; whoever waits for the address that came free;
                           its claim, if that does not name it yet, or names it and it is gone
Cluster changed ─────────► its pools and their claims, and claims that name it, if pause or existence changed
"""

from __future__ import annotations

from typing import Any

from berth.control.controller import Controller
from berth.control.informers import WatchSpec
from berth.dialects.claim_counts import Tally
from berth.dialects.dialect import Dependencies, DialectRuntime
from berth.dialects.metal3 import admit, kinds
from berth.dialects.metal3.claim_api import Flavour, holder
from berth.dialects.metal3.claims import Book
from berth.dialects.metal3.ipaddressclaim import Capi
from berth.dialects.metal3.ipclaim import Native
from berth.dialects.metal3.leases import Leases, Twins, block_key, block_of
from berth.dialects.metal3.life import Life
from berth.dialects.metal3.orphans import Janitor, Pace
from berth.dialects.metal3.pause import Gate, is_cluster_paused, is_paused
from berth.dialects.metal3.pools import PoolLife, Pools
from berth.dialects.metal3.settings import Metal3Settings
from berth.kube import meta
from berth.kube.meta import Ref

Object = dict[str, Any]
# More passes than requests in flight: a crowd that waits for one look at the other API holds up nobody else.
AT_ONCE = 256


def build(kit: Dependencies) -> DialectRuntime:
    return _Wiring(kit).built()


class _Wiring:
    def __init__(self, kit: Dependencies) -> None:
        self._kit = kit
        self._started = False  # before every cache is filled nothing is decided, so there is nobody to wake
        self._pool_kept = kit.keep(WatchSpec((kinds.POOL,), {"cluster": _cluster_of_pool}))
        self._clusters = kit.keep(WatchSpec(kinds.CLUSTERS, optional=True))
        self._gate = Gate(self._clusters.cache, kit.settings.of(Metal3Settings).watch_filter)
        self._twins = Twins(kit.client)
        self._tally = Tally(kit.metrics, "metal3")
        native, capi = Native(), Capi()
        self._native = self._claims(native, (kinds.CLAIM,), (kinds.ADDRESS,), optional=False)
        self._capi = self._claims(capi, kinds.CAPI_CLAIMS, kinds.CAPI_ADDRESSES, optional=True)
        self._twins.pair(self._native.leases, self._capi.leases)
        self._pools = Pools((self._native.leases, self._capi.leases), kit.events)
        books = {id(book.leases): book for book in (self._native, self._capi)}
        self._pools.is_bound = lambda leases, address: books[id(leases)].is_named(address)
        self._native.pools = self._capi.pools = self._pools
        life = PoolLife(kit, self._pool_kept, self._pools, self._gate)
        self._pool_controller = Controller("metal3.pool", life.reconcile, kit.metrics)
        self._pools.touched = self._touch_pool
        self._pools.wake = self._wake_claim
        self._claim_controllers = {
            book.flavour.kind: self._claim_controller(book) for book in (self._native, self._capi)
        }
        self._listen()

    def built(self) -> DialectRuntime:
        told = self._kit.settings.of(Metal3Settings)
        pace = Pace(told.sweep_seconds, told.orphan_seconds)
        janitor = Janitor((self._native, self._capi), self._pools, self._kit.events, pace)
        return DialectRuntime(
            controllers=(self._pool_controller, *self._claim_controllers.values()),
            adopt=self._adopt,
            routes=admit.routes(),
            tasks=(janitor.run, janitor.watch_obstacles),
        )

    def _claims(self, flavour: Flavour, claims: Any, addresses: Any, *, optional: bool) -> Book:
        claim_kept = self._kit.keep(WatchSpec(claims, _claim_indexes(flavour), optional))
        address_kept = self._kit.keep(WatchSpec(addresses, _address_indexes(flavour), optional))
        leases = Leases(flavour, address_kept, self._kit.client, self._twins)
        return Book(claim_kept, leases, self._pool_kept.cache, self._gate, self._kit.client)

    def _claim_controller(self, book: Book) -> Controller:
        life = Life(book, self._kit.client, self._kit.events, self._kit.metrics)
        name = f"metal3.{book.flavour.kind.lower()}"
        controller = Controller(name, life.reconcile, self._kit.metrics, at_once=AT_ONCE)
        book.wake = controller.add
        return controller

    # What wakes what

    def _listen(self) -> None:
        self._pool_kept.cache.listen(self._pool_changed)
        self._clusters.cache.listen(self._cluster_changed)
        for book in (self._native, self._capi):
            book.kept.cache.listen(self._claim_listener(book))
            book.leases.kept.cache.listen(self._address_listener(book))

    def _adopt(self) -> None:
        """Existing leases before newcomers, then everything once, the oldest claims first."""
        self._started = True
        for pool in self._pool_kept.cache:
            self._pool_changed(None, pool)
        for book in (self._native, self._capi):
            for claim in sorted(book.kept.cache, key=_age):
                self._claim_controllers[book.flavour.kind].add(meta.ref(claim))

    def _pool_changed(self, old: Object | None, new: Object | None) -> None:
        pool = new or old
        if pool is None or not self._started:
            return
        self._pool_controller.add(meta.ref(pool))
        if new is None:
            self._pools.close(_name(pool))
        elif old is None or _differs(old, new):
            self._pools.open(new, self._wake_claim)
            self._remember_claims_of(_name(pool))
            self._wake_claims_of(_name(pool))
        elif meta.finalizers(old) != meta.finalizers(new):
            self._wake_claims_of(_name(pool))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        cluster = new or old
        if cluster is None or not self._started:
            return
        if old is not None and new is not None and _is_same(old, new):
            return
        for pool in self._pool_kept.cache.by("cluster", _name(cluster)):
            self._pool_controller.add(meta.ref(pool))
            self._wake_claims_of(_name(pool))
        for book in (self._native, self._capi):
            self._wake_unsettled(book, book.kept.cache.by("cluster", _name(cluster)))

    def _claim_listener(self, book: Book) -> Any:
        controller, count = self._claim_controllers[book.flavour.kind], self._tally.listener(book.state)

        def changed(old: Object | None, new: Object | None) -> None:
            claim = new or old
            count(old, new)
            if claim is not None and self._started and book.flavour.pool_key(claim) is not None:
                controller.add(meta.ref(claim))

        return changed

    def _address_listener(self, book: Book) -> Any:
        def changed(old: Object | None, new: Object | None) -> None:
            if not self._started or (old is not None and new is not None and meta.uid(old) == meta.uid(new)):
                return
            if old is not None:
                self._address_gone(book, old)
            if new is not None:
                self._address_came(book, new)

        return changed

    def _address_gone(self, book: Book, address: Object) -> None:
        claim = book.names(address)
        self._pools.gone(book.leases, address, kept=claim is not None)
        if claim is not None:
            self._wake_claim(meta.ref(claim))

    def _address_came(self, book: Book, address: Object) -> None:
        self._pools.came(book.leases, address)
        claim = book.kept.cache.get(address["metadata"]["namespace"], book.flavour.claim_of_address(address))
        if claim is not None and book.misses(claim, address):
            self._wake_claim(meta.ref(claim))

    def _touch_pool(self, key: str) -> None:
        namespace, name = key.split("/", 1)
        self._pool_controller.add(Ref("IPPool", namespace, name), 0.05)

    def _wake_claim(self, ref: Ref) -> None:
        self._claim_controllers[ref.kind].add(ref)

    def _remember_claims_of(self, pool_key: str) -> None:
        for book in (self._native, self._capi):
            for claim in book.kept.cache.by("pool", pool_key):
                book.remember(claim)

    def _wake_claims_of(self, pool_key: str) -> None:
        for book in (self._native, self._capi):
            self._wake_unsettled(book, book.kept.cache.by("pool", pool_key))

    def _wake_unsettled(self, book: Book, claims: list[Object]) -> None:
        for claim in sorted(filter(book.is_unsettled, claims), key=_age):
            self._wake_claim(meta.ref(claim))


def _differs(old: Object, new: Object) -> bool:
    return (
        old.get("spec") != new.get("spec")
        or is_paused(old) != is_paused(new)
        or meta.is_deleting(old) != meta.is_deleting(new)
        or meta.labels(old) != meta.labels(new)
        or meta.uid(old) != meta.uid(new)
    )


def _is_same(old: Object, new: Object) -> bool:
    return is_cluster_paused(old) == is_cluster_paused(new) and meta.uid(old) == meta.uid(new)


def _claim_indexes(flavour: Flavour) -> dict[str, Any]:
    def cluster(claim: Object) -> tuple[str, ...]:
        name = flavour.cluster_name(claim)
        return (f"{claim['metadata']['namespace']}/{name}",) if name else ()

    return {"pool": lambda claim: _key(flavour.pool_key(claim)), "cluster": cluster}


def _address_indexes(flavour: Flavour) -> dict[str, Any]:
    def block(address: Object) -> tuple[str, ...]:
        pool, found = flavour.pool_of_address(address), block_of(address)
        return () if pool is None or found is None else (block_key(pool, found),)

    return {
        "block": block,
        "pool": lambda address: _key(flavour.pool_of_address(address)),
        "holder": lambda address: (_holder(flavour, address),),
        "namespace": lambda address: (address["metadata"]["namespace"],),
    }


def _holder(flavour: Flavour, address: Object) -> str:
    return holder(flavour, address["metadata"]["namespace"], flavour.claim_of_address(address))


def _key(value: str | None) -> tuple[str, ...]:
    return () if value is None else (value,)


def _cluster_of_pool(pool: Object) -> tuple[str, ...]:
    name = (pool.get("spec") or {}).get("clusterName")
    return (f"{pool['metadata']['namespace']}/{name}",) if name else ()


def _name(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _age(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("creationTimestamp", ""), obj["metadata"]["name"]
