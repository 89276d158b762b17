"""What is watched and what wakes what.

IPPool changed ──────────► the pool; its unsettled claims, if its spec, pause or deletion changed
IPClaim, IPAddressClaim ─► the claim
IPAddress of either API ─► the pool's space and status; whoever waits for the address that came free;
                           its claim, if that does not name it yet, or names it and it is gone
Cluster changed ─────────► its pools and their claims, and claims that name it, if pause or existence changed
"""

from __future__ import annotations

from functools import partial
from typing import Any

from berth.control.controller import Controller
from berth.control.informers import WatchSpec
from berth.dialects.claim import ClaimReconciler
from berth.dialects.claim_counts import Tally
from berth.dialects.dialect import Dependencies, DialectRuntime
from berth.dialects.metal3 import admit, kinds
from berth.dialects.metal3.claim_api import Flavour, holder
from berth.dialects.metal3.claims import PoolClaimHandler
from berth.dialects.metal3.ipaddressclaim import Capi
from berth.dialects.metal3.ipclaim import Native
from berth.dialects.metal3.leases import IPAddressLedger, Twins, block_key, block_of
from berth.dialects.metal3.orphans import LostAddresses
from berth.dialects.metal3.pause import Gate, is_cluster_paused, is_paused
from berth.dialects.metal3.pools import IPPools, PoolLife
from berth.dialects.metal3.settings import Metal3Settings
from berth.dialects.orphans import Collector, Pace
from berth.dialects.wiring import Listeners, by_age, full_name, is_changed, latest
from berth.kube import meta
from berth.kube.meta import Ref

Object = dict[str, Any]
# More passes than requests in flight: a crowd that waits for one look at the other API holds up nobody else.
AT_ONCE = 256


def build(kit: Dependencies) -> DialectRuntime:
    return _Metal3Wiring(kit).built()


class _Metal3Wiring:
    def __init__(self, kit: Dependencies) -> None:
        self._kit = kit
        self._listeners = Listeners()
        self._pool_kept = kit.watch(WatchSpec((kinds.POOL,), {"cluster": _cluster_of_pool}))
        self._clusters = kit.watch(WatchSpec(kinds.CLUSTERS, optional=True))
        self._gate = Gate(self._clusters.cache, kit.settings.of(Metal3Settings).watch_filter)
        self._twins = Twins(kit.client)
        self._tally = Tally(kit.metrics, "metal3")
        native, capi = Native(), Capi()
        self._native = self._claims(native, (kinds.CLAIM,), (kinds.ADDRESS,), optional=False)
        self._capi = self._claims(capi, kinds.CAPI_CLAIMS, kinds.CAPI_ADDRESSES, optional=True)
        self._twins.pair(self._native.leases, self._capi.leases)
        self._pools = IPPools((self._native.leases, self._capi.leases), kit.events)
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
        books = (self._native, self._capi)
        lost = LostAddresses(books, self._pools, self._pool_kept.cache, self._kit.events)
        return DialectRuntime(
            controllers=(self._pool_controller, *self._claim_controllers.values()),
            adopt=self._adopt,
            routes=admit.routes(),
            tasks=(Collector(lost, pace).run, partial(lost.watch_obstacles, pace.every_seconds)),
        )

    def _claims(self, flavour: Flavour, claims: Any, addresses: Any, *, optional: bool) -> PoolClaimHandler:
        claim_kept = self._kit.watch(WatchSpec(claims, _claim_indexes(flavour), optional))
        address_kept = self._kit.watch(WatchSpec(addresses, _address_indexes(flavour), optional))
        leases = IPAddressLedger(flavour, address_kept, self._kit.client, self._twins)
        return PoolClaimHandler(claim_kept, leases, self._pool_kept.cache, self._gate, self._kit.client)

    def _claim_controller(self, book: PoolClaimHandler) -> Controller:
        claims = ClaimReconciler(book, self._kit.events, self._kit.metrics)
        name = f"metal3.{book.flavour.kind.lower()}"
        return Controller(name, claims.reconcile, self._kit.metrics, at_once=AT_ONCE)

    # What wakes what

    def _listen(self) -> None:
        self._listeners.on(self._pool_kept.cache, self._pool_changed)
        self._listeners.on(self._clusters.cache, self._cluster_changed)
        for book in (self._native, self._capi):
            book.informer.cache.listen(self._tally.listener(book.state))
            self._listeners.on(book.informer.cache, self._claim_listener(book))
            self._listeners.on(book.leases.kept.cache, self._address_listener(book))

    def _adopt(self) -> None:
        """Existing leases before newcomers, then everything once, the oldest claims first."""
        self._listeners.start()
        for pool in self._pool_kept.cache:
            self._pool_changed(None, pool)
        for book in (self._native, self._capi):
            for claim in by_age(book.informer.cache):
                self._claim_controllers[book.flavour.kind].add(meta.ref(claim))

    def _pool_changed(self, old: Object | None, new: Object | None) -> None:
        pool = latest(old, new)
        self._pool_controller.add(meta.ref(pool))
        if new is None:
            self._pools.close(full_name(pool))
            self._wake_claims_of(full_name(pool))  # what they say must not outlive the pool it was about
        elif old is None or _is_changed(old, new):
            self._pools.open(new, self._wake_claim)
            self._remember_claims_of(full_name(pool))
            self._wake_claims_of(full_name(pool))
        elif meta.finalizers(old) != meta.finalizers(new):
            self._wake_claims_of(full_name(pool))

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        cluster = latest(old, new)
        if old is not None and new is not None and _is_same(old, new):
            return
        for pool in self._pool_kept.cache.by("cluster", full_name(cluster)):
            self._pool_controller.add(meta.ref(pool))
            self._wake_claims_of(full_name(pool))
        for book in (self._native, self._capi):
            self._wake_unsettled(book, book.informer.cache.by("cluster", full_name(cluster)))

    def _claim_listener(self, book: PoolClaimHandler) -> Any:
        controller = self._claim_controllers[book.flavour.kind]

        def changed(old: Object | None, new: Object | None) -> None:
            claim = latest(old, new)
            if book.flavour.pool_key(claim) is not None:
                controller.add(meta.ref(claim))

        return changed

    def _address_listener(self, book: PoolClaimHandler) -> Any:
        def changed(old: Object | None, new: Object | None) -> None:
            if old is not None and new is not None and meta.uid(old) == meta.uid(new):
                return
            if old is not None:
                self._address_gone(book, old)
            if new is not None:
                self._address_came(book, new)

        return changed

    def _address_gone(self, book: PoolClaimHandler, address: Object) -> None:
        claim = book.names(address)
        self._pools.gone(book.leases, address, kept=claim is not None)
        if claim is not None:
            self._wake_claim(meta.ref(claim))

    def _address_came(self, book: PoolClaimHandler, address: Object) -> None:
        self._pools.came(book.leases, address)
        claim = book.informer.cache.get(
            address["metadata"]["namespace"], book.flavour.claim_of_address(address)
        )
        if claim is not None and book.misses(claim, address):
            self._wake_claim(meta.ref(claim))

    def _touch_pool(self, key: str) -> None:
        namespace, name = key.split("/", 1)
        self._pool_controller.add(Ref("IPPool", namespace, name), 0.05)

    def _wake_claim(self, ref: Ref) -> None:
        self._claim_controllers[ref.kind].add(ref)

    def _remember_claims_of(self, pool_key: str) -> None:
        for book in (self._native, self._capi):
            for claim in book.informer.cache.by("pool", pool_key):
                book.remember(claim)

    def _wake_claims_of(self, pool_key: str) -> None:
        for book in (self._native, self._capi):
            self._wake_unsettled(book, book.informer.cache.by("pool", pool_key))

    def _wake_unsettled(self, book: PoolClaimHandler, claims: list[Object]) -> None:
        for claim in by_age(filter(book.is_unsettled, claims)):
            self._wake_claim(meta.ref(claim))


def _is_changed(old: Object, new: Object) -> bool:
    is_other = is_paused(old) != is_paused(new) or meta.labels(old) != meta.labels(new)
    return is_other or is_changed(old, new)


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
