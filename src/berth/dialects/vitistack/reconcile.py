"""What is watched and what wakes what.

Service changed ────────► the Service, if it is or was ours, or records name it
record changed ─────────► its Service; one for an admission under way, when its time is over
pool changed ───────────► the Services whose addresses left it
every so often ─────────► every Service and record once, compared with the IPAM-API
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from berth.backoff import Backoff
from berth.central.client import Access, ApiClient, TokenFile, trusting
from berth.control.admission import Handler
from berth.control.batching import LoadGauge, Tasks
from berth.control.controller import Controller
from berth.control.informers import Informer, WatchSpec
from berth.dialects.claim_counts import Tally
from berth.dialects.dialect import Dependencies, DialectRuntime
from berth.dialects.vitistack import admit, entries, kinds, pools, record_store, records
from berth.dialects.vitistack.brake import ReleaseBrake
from berth.dialects.vitistack.calls import Calls
from berth.dialects.vitistack.context import Parts, Whereabouts
from berth.dialects.vitistack.heartbeat import Inventories
from berth.dialects.vitistack.ipam_client import Registrar
from berth.dialects.vitistack.life import ServiceLife
from berth.dialects.vitistack.metallb import MetalLb
from berth.dialects.vitistack.mutate import Mutation
from berth.dialects.vitistack.pools import MetalLbPools
from berth.dialects.vitistack.record_store import Cabinet, Filed, Records
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.release import Restraint
from berth.dialects.vitistack.secrets import Vault
from berth.dialects.vitistack.services import Neighbours
from berth.dialects.vitistack.settings import VitistackSettings
from berth.dialects.vitistack.stored import Stored
from berth.dialects.vitistack.validate import Validation
from berth.dialects.wiring import Listeners
from berth.errors import UserError
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.meta import Ref
from berth.net import Address

Object = dict[str, Any]
BACKOFF = Backoff(most_seconds=30.0)  # an IPAM-API that is back serves everybody soon
FEW = 256  # addresses that left a pool, looked up one by one


def build(kit: Dependencies) -> DialectRuntime:
    return _VitistackWiring(kit).built()


class _VitistackWiring:
    def __init__(self, kit: Dependencies) -> None:
        self._kit = kit
        self._settings = settings = kit.settings.of(VitistackSettings)
        self._listeners = Listeners()
        self._services = kit.watch(WatchSpec((kinds.SERVICE,)))
        self._record_kept = kit.watch(records.watched(settings.namespace))
        self._filed = Filed(self._record_kept.cache)
        self._pool_kept = self._keep_pools(kit)
        self._neighbours = Neighbours(self._services.cache, self._filed, settings.classes, settings.excluded)
        self._load, self._tasks = LoadGauge(), Tasks()
        self._api = ApiClient(_access(settings))
        self._registrar = Registrar(Calls(self._api, kit.metrics, self._load, self._tasks), settings.api_url)
        self._leading = parts = self._parts(kit.client)
        self._inventories = Inventories(parts, self._filed, self._api, kit.metrics)
        self._inventories.thawed = self._thawed
        brake = ReleaseBrake(parts, self._filed, kit.events, kit.metrics)
        self._life = ServiceLife(parts, self._services, kit.events, Restraint(self._inventories, brake))
        brake.watch(self._record_kept.cache, self._life.holding.has_met)
        self._controller = Controller(
            "vitistack.service",
            self._life.reconcile,
            kit.metrics,
            at_once=kit.settings.at_once,
            backoff=BACKOFF,
        )
        self._listen()

    def built(self) -> DialectRuntime:
        return DialectRuntime(
            controllers=(self._controller,),
            adopt=self._adopt,
            routes=self._routes(),
            tasks=(self._resync, self._inventories.run),
            around=self._around(),
        )

    @asynccontextmanager
    async def _around(self) -> AsyncIterator[None]:
        async with self._api, self._tasks:
            yield

    def _keep_pools(self, kit: Dependencies) -> Informer | None:
        namespace = self._settings.metallb_namespace
        return kit.watch(pools.watched(namespace)) if namespace else None

    def _parts(self, client: Client) -> Parts:
        """One set for the webhooks of every replica, one for the leader's controller."""
        settings = self._settings
        pool_kept = self._pool_kept.through(client) if self._pool_kept is not None else None
        cabinet = Cabinet(self._filed, self._kit.metrics, self._load, self._tasks)
        return Parts(
            client=client,
            settings=settings,
            vault=Vault(client, settings.namespace, self._depends_on_default, self._tasks),
            records=Records(self._record_kept.through(client), settings.namespace, cabinet),
            registrar=self._registrar,
            pools=MetalLbPools(pool_kept, settings.metallb_namespace, self._load),
            metallb=MetalLb(client, settings.metallb_namespace, settings.metallb_labels, self._tasks),
            neighbours=self._neighbours,
            places=Whereabouts(client, self._tasks),
            stored=Stored(client, self._services.cache, self._filed, settings.pending_seconds),
            metrics=self._kit.metrics,
        )

    def _depends_on_default(self) -> bool:
        """Records lie beside that Secret and may be lost together with it: live Services tell as well."""
        recorded = any(record.secret == kinds.DEFAULT_SECRET for record in self._filed)
        return recorded or self._neighbours.depend_on_default()

    def _routes(self) -> Mapping[str, Handler]:
        kit, parts = self._kit, self._parts(self._kit.free)
        frame = admit.Frame(self._ready, kit, self._load, parts.stored)
        return {
            kinds.MUTATE_PATH: frame.around(Mutation(parts).review),
            kinds.VALIDATE_PATH: frame.around(Validation(parts).review),
        }

    async def _ready(self) -> None:
        """What is whose is known only when the lists are complete."""
        for kept in (self._services, self._record_kept):
            await kept.known.wait()

    # What wakes what

    def _listen(self) -> None:
        self._services.cache.listen(Tally(self._kit.metrics, "vitistack").listener(self._neighbours.state))
        self._listeners.on(self._services.cache, self._service_changed)
        self._listeners.on(self._record_kept.cache, self._record_changed)
        if self._pool_kept is not None:
            self._listeners.on(self._pool_kept.cache, self._pool_changed)

    def _adopt(self) -> None:
        self._listeners.start()
        self._life.holding.again()
        self._everything()

    def _everything(self) -> None:
        for service in self._services.cache:
            if self._neighbours.is_served(service):
                self._controller.add(meta.ref(service))
        for record in self._filed:
            self._controller.add(_service_of(record))

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            self._life.holding.again()
            self._everything()
            await self._leading.records.tidy()

    def _thawed(self) -> None:
        """What was refused because another operator spoke for the cluster waits no longer."""
        for record in self._filed:
            if not record.released and not self._inventories.is_listed(record):
                self._controller.add(_service_of(record))

    def _service_changed(self, old: Object | None, new: Object | None) -> None:
        either = [one for one in (old, new) if one is not None]
        ref = meta.ref(either[0])
        recorded = bool(self._filed.of_service(ref.namespace, ref.name))
        if recorded or any(self._neighbours.is_served(one) for one in either):
            self._controller.add(ref)

    def _record_changed(self, old: Object | None, new: Object | None) -> None:
        for record in record_store.differences(old, new):
            ref = _service_of(record)
            live = self._services.cache.get(ref.namespace, ref.name)
            if record.address in self._neighbours.addresses_of(live):
                self._controller.add(ref)
            else:
                # Its Service may be stored any moment, and then wakes us itself.
                self._controller.add(ref, max(0.0, record.until - time.time()) + 0.1)

    def _pool_changed(self, old: Object | None, new: Object | None) -> None:
        if old is None:
            return
        lost = entries.lost(old, new)
        if lost.count > FEW:
            self._everything()
            return
        for item in lost:
            for value in range(item.first, item.last + 1):
                for service in self._neighbours.listing(Address(item.family, value)):
                    self._controller.add(meta.ref(service))


def _service_of(record: Record) -> Ref:
    return Ref("Service", record.namespace, record.who.service_name)


def _access(settings: VitistackSettings) -> Access:
    token = None if settings.api_token_file is None else TokenFile(settings.api_token_file)
    _refuse_credentials(settings.api_url)
    return Access(settings.api_url, token, trusting(settings.api_ca_file), settings.api_seconds)


def _refuse_credentials(url: str) -> None:
    """Whoever is refused an address reads the URL, and so does the log."""
    if "@" in url or "?" in url:
        raise UserError(
            "--api-url may not have a user, a password or a query in it: everybody who is refused an address "
            "reads it. Put a token into a file, and name that with --api-token-file."
        )
