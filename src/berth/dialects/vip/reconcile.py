"""What is watched and what wakes what.

IPGroup changed ───────► the group; whoever waits for an address; VirtualIPs that wait to be migrated
IP changed ────────────► the pools it lies in; whoever waits for its address; its owner, if either vanished
Service changed ───────► the Service, if it is ours or might be; the VirtualIPs that expose it
VirtualIP changed ─────► the VirtualIP
GroupSegmentMapping ───► whoever waits for an address
every so often ────────► everything once (RECONCILIATION_INTERVAL_MS); settled objects cost no request
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from berth.control.controller import Controller
from berth.control.informers import WatchSpec
from berth.dialects.claim import ClaimReconciler
from berth.dialects.claim_counts import Tally
from berth.dialects.dialect import Dependencies, DialectRuntime
from berth.dialects.orphans import Collector
from berth.dialects.vip import admit, kinds, leases, migration_locks
from berth.dialects.vip.claims import ServiceHandler
from berth.dialects.vip.ipgroup import GroupLife
from berth.dialects.vip.migrate import STAGES, Migration, state_of
from berth.dialects.vip.orphans import PACE, OrphanedIPs, owners
from berth.dialects.vip.pools import IPLease, Register, Shelf
from berth.dialects.vip.settings import VipSettings
from berth.dialects.vip.translate import claim_state, owner_of
from berth.dialects.vip.virtualip import VirtualIPHandler, VirtualLife
from berth.dialects.vip.writes import Objects
from berth.dialects.wiring import Listeners, by_age, full_name, is_changed, latest
from berth.kube import meta
from berth.kube.meta import Ref
from berth.net import Block

Object = dict[str, Any]
TOUCHED_SECONDS = 0.25  # a flood of Services is one look at their group


def build(kit: Dependencies) -> DialectRuntime:
    return _VipWiring(kit).built()


class _VipWiring:
    def __init__(self, kit: Dependencies) -> None:
        self._kit = kit
        self._listeners = Listeners()
        self._group_kept = kit.watch(WatchSpec((kinds.IPGROUP,)))
        self._ip_kept = kit.watch(WatchSpec((kinds.IP,), leases.indexes()))
        self._services = kit.watch(WatchSpec((kinds.SERVICE,)))
        self._vip_kept = kit.watch(WatchSpec((kinds.VIRTUAL_IP,), migration_locks.indexes(), optional=True))
        self._mapping_kept = kit.watch(WatchSpec((kinds.MAPPING,), optional=True))
        self._groups = Shelf(kinds.GROUP_LABEL, self._wake)
        self._mappings = Shelf(kinds.MAPPING_LABEL, self._wake)
        self._ledger = leases.IPLedger(self._ip_kept)
        self._register = Register(self._ledger, (self._groups, self._mappings), self._wake)
        self._register.shows = self._shows
        self._register.touched = self._touch
        self._controllers = {
            "IPGroup": self._group_controller(),
            "Service": self._service_controller(),
            "VirtualIP": self._vip_controller(),
        }
        self._listen()

    def built(self) -> DialectRuntime:
        kit, of_kind = self._kit, owners(self._services, self._vip_kept)
        pools = {kinds.GROUP_LABEL: self._group_kept, kinds.MAPPING_LABEL: self._mapping_kept}
        orphans = OrphanedIPs(self._ledger, of_kind, pools, kit.events, kit.settings.of(VipSettings).classes)
        return DialectRuntime(
            controllers=tuple(self._controllers.values()),
            adopt=self._adopt,
            routes=admit.routes(admit.WhoAmI(kit.free), admit.MayRestore(kit.free)),
            tasks=(Collector(orphans, PACE).run, self._resync),
        )

    def _group_controller(self) -> Controller:
        life = GroupLife(self._kit, self._group_kept, self._groups, self._ledger)
        return Controller("vip.ipgroup", life.reconcile, self._kit.metrics)

    def _service_controller(self) -> Controller:
        kit = self._kit
        classes = kit.settings.of(VipSettings).classes
        self._book = ServiceHandler(self._services, self._register, self._groups, kit.client, classes)
        self._book.promises = migration_locks.Promises(self._vip_kept)
        claims = ClaimReconciler(self._book, kit.events, kit.metrics, surplus=self._book)
        return Controller("vip.service", claims.reconcile, kit.metrics, at_once=kit.settings.at_once)

    def _vip_controller(self) -> Controller:
        kit = self._kit
        objects = Objects(self._vip_kept, self._services)
        mappings = self._mapping_kept.cache
        self._vip_book = VirtualIPHandler(self._vip_kept, self._register, self._mappings, mappings)
        claims = ClaimReconciler(self._vip_book, kit.events, kit.metrics)
        migration = Migration(objects, self._ledger, self._groups, kit.settings.of(VipSettings).classes)
        life = VirtualLife(self._vip_book, claims, migration, objects)
        return Controller("vip.virtualip", life.reconcile, kit.metrics)

    # What wakes what

    def _listen(self) -> None:
        self._listeners.on(self._group_kept.cache, self._group_changed)
        self._listeners.on(self._mapping_kept.cache, self._mapping_changed)
        self._listeners.on(self._ip_kept.cache, self._ip_changed)
        self._listeners.on(self._services.cache, self._service_changed)
        self._services.cache.listen(Tally(self._kit.metrics, "vip").listener(claim_state))
        self._listeners.on(self._vip_kept.cache, self._vip_changed)

    def _adopt(self) -> None:
        """Existing leases before newcomers, then everything once, the oldest first."""
        self._listeners.start()
        self._register.load()
        for shelf, kept in ((self._groups, self._group_kept), (self._mappings, self._mapping_kept)):
            for pool in kept.cache:
                self._register.fill(shelf, shelf.open(pool))
        for vip in self._vip_kept.cache:
            self._vip_book.remember(vip)
        for service in self._services.cache:
            self._book.remember(service)
        self._everything()

    def _everything(self) -> None:
        services = (service for service in self._services.cache if self._book.concerns(service))
        for objects in (self._group_kept.cache, services, self._vip_kept.cache):
            for obj in by_age(objects):
                self._wake(meta.ref(obj))

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._kit.settings.of(VipSettings).resync_seconds)
            self._everything()

    def _group_changed(self, old: Object | None, new: Object | None) -> None:
        self._pool_changed(self._groups, old, new)
        self._wake(meta.ref(latest(old, new)))
        if is_changed(old, new):
            self._wake_all(vip for vip in self._vip_kept.cache if state_of(vip) in STAGES)

    def _mapping_changed(self, old: Object | None, new: Object | None) -> None:
        self._pool_changed(self._mappings, old, new)

    def _pool_changed(self, shelf: Shelf, old: Object | None, new: Object | None) -> None:
        if new is None:
            shelf.close(latest(old, new)["metadata"]["name"])
            self._register.elsewhere.wake_all()  # so that what they say names the pools there are
        elif is_changed(old, new):
            self._register.fill(shelf, shelf.open(new))

    def _ip_changed(self, old: Object | None, new: Object | None) -> None:
        self._register.record_changed(old, new)
        if new is not None and old is None:
            self._wake_missing(new)

    def _wake_missing(self, ip: Object) -> None:
        """Written for a Service we do not know: perhaps it is gone already."""
        owner = owner_of(ip)
        if owner is None or owner.kind != kinds.SERVICE.kind:
            return
        if self._services.cache.get(owner.namespace, owner.name) is None:
            self._wake(owner.ref)

    def _service_changed(self, old: Object | None, new: Object | None) -> None:
        service = latest(old, new)
        if old is not None and (new is None or meta.uid(new) != meta.uid(old)):
            self._book.left(meta.uid(old))
        if new is not None:
            self._book.remember(new)  # also what it shows no longer
        if any(self._book.concerns(seen) for seen in (new, old) if seen is not None):
            self._wake(meta.ref(service))
        self._wake_all(self._vip_kept.cache.by("service", full_name(service)))
        for owner in meta.owners(service):
            if owner.get("kind") == "VirtualIP":
                self._wake(Ref("VirtualIP", service["metadata"]["namespace"], owner["name"]))

    def _vip_changed(self, old: Object | None, new: Object | None) -> None:
        vip = latest(old, new)
        if new is not None:
            self._vip_book.remember(new)
        self._wake(meta.ref(vip))
        if new is None or meta.is_deleting(new) or (old is not None and state_of(old) != state_of(new)):
            # A rival may go on, and its Service may be free of a lock.
            for name in migration_locks.services_of(vip):
                self._wake_all(self._vip_kept.cache.by("service", name))
                self._wake(Ref("Service", *name.split("/", 1)))

    def _touch(self, lease: IPLease) -> None:
        """The first address of a group tells it at once: it must not be deleted from now on."""
        for pool in self._groups:
            ref, is_home = Ref("IPGroup", "", pool.segment.name), self._groups.is_home(pool, lease.home)
            if is_home and not self._is_held(ref.name):
                self._wake(ref)
            elif is_home or pool.segment.covers(lease.block):
                self._controllers["IPGroup"].add(ref, TOUCHED_SECONDS)

    def _is_held(self, group: str) -> bool:
        found = self._group_kept.cache.get("", group)
        return found is not None and meta.has_finalizer(found, kinds.GROUP_FINALIZER)

    def _wake(self, ref: Ref) -> None:
        self._controllers[ref.kind].add(ref)

    def _wake_all(self, objects: Iterable[Object]) -> None:
        for obj in objects:
            self._wake(meta.ref(obj))

    # Questions across kinds

    def _shows(self, holder: str, block: Block) -> Ref | None:
        kind, _, rest = holder.partition("/")
        namespace, _, name = rest.partition("/")
        found: dict[str, tuple[Any, Callable[[Object, Block], bool]]] = {
            "Service": (self._services.cache, self._book.shows),
            "VirtualIP": (self._vip_kept.cache, self._vip_book.shows),
        }
        if kind not in found:
            return None
        cache, shows = found[kind]
        obj = cache.get(namespace, name)
        return meta.ref(obj) if obj is not None and shows(obj, block) else None
