"""The vitistack dialect's world in tests: a real API server, a real `berth api`, a stand-in for MetalLB."""

from __future__ import annotations

import base64
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from tests.support import metallb
from tests.support.operator import Operator, admin, eventually, install, running
from tests.support.started import ApiProcess, free_port, start_api

from berth.central.client import Access, AddressCall, ApiClient
from berth.control.events import EVENTS
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.errors import AlreadyExists, ApiRefused, NotFound, ServerError, StatusError
from berth.kube import meta
from berth.kube.client import Client, PatchKind
from berth.leasing.holders import Identity
from berth.net import parse_range
from berth.secret import Secret

Object = dict[str, Any]
SYSTEM = "ipam-system"
VALUE = "my-awesome-password"  # the document's example


@dataclass(slots=True)
class Entry:
    """A holder's row in the API's store."""

    service: str
    cluster_id: str
    namespace_id: str
    retention: int
    deny: bool
    expires_at: int | None
    pending: bool
    uid: str

    @property
    def active(self) -> bool:
        return self.expires_at is None


@dataclass(slots=True)
class Api:
    """`berth api` as a process, and a look into its database."""

    folder: Path
    flags: tuple[str, ...] = ()
    process: ApiProcess | None = None
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v2"

    def start(self) -> None:
        standard = ("--sweep-seconds", "0.5", "--pending-seconds", "4")
        where = ("--listen", f"127.0.0.1:{self.port}", "--database", f"sqlite:///{self.folder}/api.db")
        self.process = start_api(self.folder, *standard, *where, *self.flags)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
            assert self.process.process.stdout is not None
            self.process.process.stdout.close()
            self.process = None

    def entries(self, address: str) -> dict[str, Entry]:
        bare = address.partition("/")[0]
        columns = "service_name, cluster_id, namespace_id, retention_days, deny, expires_at, pending, uid"
        rows = self._rows(f"SELECT {columns} FROM holders WHERE address = ?", bare)
        found = [Entry(r[0], r[1], r[2], r[3], bool(r[4]), r[5], bool(r[6]), r[7]) for r in rows]
        return {f"{entry.service}": entry for entry in found}

    def holders(self, address: str) -> int:
        return len(self._rows("SELECT 1 FROM holders WHERE address = ?", address.partition("/")[0]))

    def of_namespace(self, namespace_id: str) -> list[str]:
        """Addresses that Services of a namespace are on, however long still."""
        sql = "SELECT address FROM holders WHERE namespace_id = ? ORDER BY address"
        return [row[0] for row in self._rows(sql, namespace_id)]

    def addresses(self) -> list[str]:
        return sorted(row[0] for row in self._rows("SELECT address FROM addresses"))

    def history(self, namespace_id: str) -> list[str]:
        """What was done to the ledger for Services of a namespace, in order."""
        sql = "SELECT event FROM history WHERE namespace_id = ? ORDER BY id"
        return [row[0] for row in self._rows(sql, namespace_id)]

    def speakers(self) -> list[str]:
        """Epochs of the operators that were heard and have entries."""
        return [row[0] for row in self._rows("SELECT epoch FROM operators")]

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.folder}/api.db?mode=ro", uri=True)) as database:
            return database.execute(sql, values).fetchall()


@dataclass(slots=True)
class World:
    """One namespace of one test."""

    client: Client
    api: Api
    namespace: str
    operator: Operator | None = None
    namespace_id: str = ""
    made: list[tuple[str, str]] = field(default_factory=list)

    async def create(self, name: str = "my-service", **wishes: Any) -> Object:
        """A Service with `type: LoadBalancer`; keywords: annotations, namespace, and fields of the spec."""
        body = service(name, wishes.pop("namespace", self.namespace), **wishes)
        created = await self.client.create(kinds.SERVICE, body)
        self.made.append((body["metadata"]["namespace"], created["metadata"]["name"]))
        return created

    async def refused(self, name: str = "my-service", **wishes: Any) -> str:
        """The message with which it was refused; nothing else will do."""
        return (await self.refusal(name, **wishes)).message.partition("denied the request: ")[2]

    async def refusal(self, name: str = "my-service", **wishes: Any) -> StatusError:
        try:
            await self.create(name, **wishes)
        except StatusError as error:
            return error
        raise AssertionError(f"Service {name} was admitted")

    def history(self) -> list[str]:
        """Everything the IPAM-API changed for this namespace: equal before and after means nothing."""
        return self.api.history(self.namespace_id)

    async def get(self, name: str = "my-service", namespace: str = "") -> Object:
        return await self.client.get(kinds.SERVICE, name, namespace or self.namespace)

    async def annotate(self, name: str = "my-service", **changes: str | None) -> Object:
        """By the annotation's own word with underscores: `retention_period_days="7"`; None removes it."""
        keys = {kinds.PREFIX + key.replace("_", "-"): value for key, value in changes.items()}
        return await self.patch({"metadata": {"annotations": keys}}, name)

    async def patch(self, body: Object, name: str = "my-service") -> Object:
        return await self.client.patch(kinds.SERVICE, name, body, self.namespace)

    async def not_patched(self, body: Object, name: str = "my-service") -> str:
        try:
            await self.patch(body, name)
        except StatusError as error:
            return error.message.partition("denied the request: ")[2] or error.message
        raise AssertionError(f"the update of {name} was admitted")

    async def not_annotated(self, name: str = "my-service", **changes: str | None) -> str:
        keys = {kinds.PREFIX + key.replace("_", "-"): value for key, value in changes.items()}
        return await self.not_patched({"metadata": {"annotations": keys}}, name)

    async def services(self) -> list[Object]:
        return (await self.client.list(kinds.SERVICE, self.namespace)).items

    async def delete(self, name: str = "my-service", namespace: str = "") -> None:
        await self.client.delete(kinds.SERVICE, name, namespace or self.namespace)

    async def secret(
        self, name: str = "my-secret", value: str = VALUE, *, namespace: str = "", **changes: Any
    ) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace or self.namespace},
            "type": "Opaque",
            "data": {"secret": base64.b64encode(value.encode()).decode()},
            **changes,
        }
        await self.client.create(kinds.SECRET, body)

    async def pool(self, zone: str = "inet") -> list[str] | None:
        try:
            found = await self.client.get(kinds.POOL, zone, metallb.NAMESPACE)
        except NotFound:
            return None
        return list(found["spec"]["addresses"])

    async def pooled(self, address: str, zone: str = "inet") -> bool:
        wanted = parse_range(address)
        ranges = map(parse_range, await self.pool(zone) or [])
        return any(one.family == wanted.family and one.contains(wanted.first) for one in ranges)

    async def events(self, name: str = "my-service") -> set[str]:
        found = await self.client.list(EVENTS, self.namespace)
        return {one["reason"] for one in found.items if one["involvedObject"]["name"] == name}

    async def records(self) -> list[Object]:
        """Each by itself, whichever ConfigMap it lies in."""
        found = await self.client.list(kinds.CONFIG_MAP, SYSTEM, label_selector=kinds.RECORD_LABEL)
        return [
            {"metadata": {"name": name}, "data": orjson.loads(text)}
            for lying in found.items
            for name, text in (lying.get("data") or {}).items()
        ]

    async def rested(self, name: str = "my-service") -> None:
        """Returns when the controller is done with a Service that has a retention: it asks nothing more."""

        async def is_known() -> bool:
            mine = [one["data"] for one in await self.records() if self._is_of(name, one["data"])]
            return bool(mine) and all(one["until"] == "0" for one in mine)

        assert await eventually(is_known, 60)

    def _is_of(self, name: str, record: Object) -> bool:
        return bool((record["namespace"], record["service"]) == (self.namespace, name))

    async def passed(self) -> None:
        """Returns when a Service that came and went after all else has been released."""
        address = address_of(await self.create("passer-by")).partition("/")[0]
        await self.delete("passer-by")

        async def is_free() -> bool:
            return address not in self.api.addresses()

        assert await eventually(is_free, 60)

    async def opens(self, address: str, value: str, name: str = "my-service") -> bool:
        """Whether the IPAM-API takes this secret for it. A reservation does not touch an active entry."""
        entry = self.api.entries(address)[name]
        family = "ipv6" if ":" in address else "ipv4"
        who = Identity(name, entry.namespace_id, entry.cluster_id)
        async with ApiClient(Access(self.api.url, seconds=30)) as api:
            try:
                await api.register(AddressCall(who, "inet", family, Secret(value), address), pending=True)
            except ApiRefused as no:
                if no.why != "NoMatch":
                    raise
                return False
        return True

    async def default_secret(self) -> str:
        found = await self.client.get(kinds.SECRET, "default", SYSTEM)
        return base64.b64decode(found["data"]["secret"]).decode()

    async def calls(self) -> float:
        """How often the operator has asked the IPAM-API, whether that changed anything or not."""
        assert self.operator is not None
        return await metric(self.operator, "berth_ipam_api_seconds_count")

    def free_address(self, zone_start: str = "83.118.169.") -> str:
        """An address of `inet` that no other test of its module names."""
        return f"{zone_start}{next(NUMBERS)}"


NUMBERS: Iterator[int] = cycle(range(1, 250))  # each module has a ledger of its own


async def metric(operator: Operator, name: str) -> float:
    """The sum over its labels; 0 if it was never counted."""
    url = f"http://127.0.0.1:{operator.listening.metrics or operator.listening.health}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        lines = (await answer.text()).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def service(name: str, namespace: str, **wishes: Any) -> Object:
    about: Object = {"name": name, "namespace": namespace}
    if "generate" in wishes:
        about = {"generateName": wishes.pop("generate"), "namespace": namespace}
    annotations = wishes.pop("annotations", None)
    if annotations is not None:
        about["annotations"] = {kinds.PREFIX + key: value for key, value in annotations.items()}
    for key in ("finalizers", "labels"):
        if key in wishes:
            about[key] = wishes.pop(key)
    ports = [{"protocol": "TCP", "port": wishes.pop("port", 80), "targetPort": 100}]
    spec = {"type": "LoadBalancer", "ports": ports, **wishes}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


def of(obj: Object, word: str) -> str:
    """The value of an `ipam.vitistack.io/` annotation."""
    return meta.annotations(obj).get(kinds.PREFIX + word, "")


def address_of(obj: Object) -> str:
    return of(obj, "addresses")


@asynccontextmanager
async def prepared(cluster: DevCluster) -> AsyncIterator[Client]:
    """Namespaces, MetalLB's kind and Pod; what an earlier module left is gone."""
    async with admin(cluster) as client:
        await install(client, [metallb.crd()])
        for name in (SYSTEM, metallb.NAMESPACE):
            with suppress(AlreadyExists):
                await client.create(kinds.NAMESPACE, _namespace(name))
        await clear(client)
        await metallb.start_pod(client)
        yield client
        await clear(client)


async def clear(client: Client) -> None:
    for found in (await client.list(kinds.SERVICE)).items:
        if found["spec"].get("type") == "LoadBalancer":
            with suppress(NotFound):
                about = found["metadata"]
                await client.patch(
                    kinds.SERVICE, about["name"], {"metadata": {"finalizers": None}}, about["namespace"]
                )
                await client.delete(kinds.SERVICE, about["name"], about["namespace"])
    for resource, namespace, selector in (
        (kinds.CONFIG_MAP, SYSTEM, kinds.RECORD_LABEL),
        (kinds.SECRET, SYSTEM, ""),
        (kinds.POOL, metallb.NAMESPACE, ""),
    ):
        for found in (await client.list(resource, namespace, label_selector=selector)).items:
            with suppress(NotFound):
                await client.delete(resource, found["metadata"]["name"], namespace)


@asynccontextmanager
async def served(
    cluster: DevCluster, folder: Path, *, assign: bool = True, **settings: Any
) -> AsyncIterator[World]:
    """Everything running; the world's namespace is to be set by each test."""
    api = Api(folder)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(prepared(cluster))
        api.start()
        stack.callback(api.stop)
        if assign:
            await stack.enter_async_context(metallb.assigning(client))
        operator = await stack.enter_async_context(operating(cluster, api, **settings))
        yield World(client, api, "", operator)


@asynccontextmanager
async def operating(cluster: DevCluster, api: Api, **settings: Any) -> AsyncIterator[Operator]:
    chosen = {
        "dialects": ("vitistack",),
        "webhook_url": f"https://127.0.0.1:{free_port()}",
        "api_url": api.url,
        "vitistack_pending_seconds": 4.0,
        "vitistack_heartbeat_seconds": 1.0,  # an operator that was killed counts as gone soon
        **settings,
    }
    async with running(cluster, crds=[], **chosen) as operator:
        yield operator


async def fresh(world: World, prefix: str = "services") -> World:
    """The same with a namespace of its own."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    made = await world.client.create(kinds.NAMESPACE, _namespace(name))
    return replace(world, namespace=name, namespace_id=meta.uid(made), made=[])


async def emptied(world: World) -> None:
    for namespace, name in world.made:
        await eventually(partial(_let_go, world, namespace, name))
    with suppress(NotFound):
        await world.client.delete(kinds.NAMESPACE, world.namespace)


async def _let_go(world: World, namespace: str, name: str) -> bool:
    """False while the API server still calls the webhooks of an operator that has just left."""
    no_finalizers = {"metadata": {"finalizers": None}}
    try:
        await world.client.patch(kinds.SERVICE, name, no_finalizers, namespace, kind=PatchKind.MERGE)
        await world.client.delete(kinds.SERVICE, name, namespace)
    except NotFound:
        return True
    except ServerError:
        return False
    return True


def _namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


__all__ = [
    "Api",
    "World",
    "address_of",
    "emptied",
    "eventually",
    "fresh",
    "metric",
    "of",
    "operating",
    "served",
]
