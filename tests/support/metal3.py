"""Metal3 objects and one namespace of them, as a user sees it: ask, wait for the answer, read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.operator import PATIENCE_SECONDS, built, eventually, gone

from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]

CAPI_CLAIM = kinds.CAPI_CLAIMS[0]
CAPI_ADDRESS = kinds.CAPI_ADDRESSES[0]
CLUSTER = kinds.CLUSTERS[0]
PAUSED = {kinds.PAUSED: "true"}
# "At once" to a test. It takes a fraction of a second, and more on a machine that does much else; what is not
# woken by its cause is served by no timer of ours within this time.
SOON = 30.0

# The contract's fixtures.
SEED: Object = {
    "clusterName": "cluster1",
    "namePrefix": "test1-prov",
    "pools": [
        {"start": "192.168.0.10", "end": "192.168.0.30", "prefix": 25, "gateway": "192.168.0.1"},
        {"subnet": "192.168.1.1/26"},
        {"subnet": "192.168.1.128/25"},
    ],
    "prefix": 24,
    "gateway": "192.168.1.1",
    "preAllocations": {"claim1": "192.168.0.12"},
}
A: Object = {
    "namePrefix": "a",
    "pools": [{"start": "10.0.0.10", "end": "10.0.0.12"}],
    "prefix": 24,
    "gateway": "10.0.0.1",
}
B: Object = {
    "namePrefix": "b",
    "pools": [
        {"start": "10.0.1.10", "end": "10.0.1.10", "prefix": 24},
        {
            "start": "10.0.2.10",
            "end": "10.0.2.20",
            "prefix": 16,
            "gateway": "10.0.2.1",
            "dnsServers": ["1.1.1.1"],
        },
    ],
    "prefix": 22,
    "gateway": "10.0.0.1",
    "dnsServers": ["8.8.8.8", "8.8.4.4"],
}
SIX: Object = {
    "namePrefix": "six",
    "pools": [{"start": "2001:db8::1", "end": "2001:db8::a"}],
    "prefix": 64,
    "gateway": "2001:db8::ffff",
}


def pool(name: str = "pool", spec: Mapping[str, Any] = A, **metadata: Any) -> Object:
    return built(kinds.POOL, name, spec, **metadata)


def ranged(*entries: Mapping[str, Any], name_prefix: str = "a", **spec: Any) -> Object:
    """The spec of a pool of just these entries."""
    return {"namePrefix": name_prefix, "pools": [dict(entry) for entry in entries], **spec}


def claim(name: str, pool: str = "pool", *, wants: str | None = None, **metadata: Any) -> Object:
    if wants is not None:
        metadata["annotations"] = {**metadata.get("annotations", {}), kinds.WANTED_ADDRESS: wants}
    return built(kinds.CLAIM, name, {"pool": {"name": pool}}, **metadata)


def capi_claim(name: str, pool: str = "pool", *, cluster: str | None = None, **metadata: Any) -> Object:
    spec: Object = {"poolRef": {"apiGroup": kinds.GROUP, "kind": "IPPool", "name": pool}}
    if cluster is not None:
        spec["clusterName"] = cluster
    return built(CAPI_CLAIM, name, spec, **metadata)


def address(name: str, text: str, claim: str, pool: str = "pool", **metadata: Any) -> Object:
    """An IPAddress as a person writes it: no owners, no finalizers."""
    spec = {"address": text, "claim": {"name": claim}, "pool": {"name": pool}}
    return built(kinds.ADDRESS, name, spec, **metadata)


def capi_address(name: str, text: str, claim: str, pool: str = "pool", **metadata: Any) -> Object:
    reference = {"apiGroup": kinds.GROUP, "kind": "IPPool", "name": pool}
    spec = {"address": text, "prefix": 24, "claimRef": {"name": claim}, "poolRef": reference}
    return built(CAPI_ADDRESS, name, spec, **metadata)


def cluster_object(name: str = "cluster1", *, paused: bool = False, **metadata: Any) -> Object:
    # v1beta2 asks for a topology or two references; what they name is not looked for here.
    reference = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Cluster", "name": name}
    return built(CLUSTER, name, {"infrastructureRef": reference, "paused": paused}, **metadata)


RESOURCES: dict[tuple[str, str], Resource] = {
    (resource.api_version, resource.kind): resource
    for resource in (
        kinds.POOL,
        kinds.CLAIM,
        kinds.ADDRESS,
        *kinds.CAPI_CLAIMS,
        *kinds.CAPI_ADDRESSES,
        *kinds.CLUSTERS,
    )
}


def resource_of(obj: Mapping[str, Any]) -> Resource:
    return RESOURCES[obj["apiVersion"], obj["kind"]]


class Witness:
    """Which addresses each claim, by UID, ever showed: fed by a watch of its own."""

    def __init__(self, field: str) -> None:
        self._field = field
        self.shown: dict[str, set[str]] = defaultdict(set)

    def replace(self, items: list[Object], resource_version: str) -> None:
        for obj in items:
            self.apply("LISTED", obj)

    reset = replace

    def apply(self, type: str, obj: Object) -> None:
        named = (obj.get("status") or {}).get(self._field) or {}
        if named.get("name"):
            self.shown[meta.uid(obj)].add(named["name"])

    def changed(self) -> dict[str, set[str]]:
        """Those who showed more than one."""
        return {uid: names for uid, names in self.shown.items() if len(names) > 1}


class World:
    """One namespace. `ask` creates and waits for the answer; what is not found in time fails the test."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    # Plain verbs

    async def create(self, *objects: Object) -> Object:
        """Creates them in order; the last one as stored."""
        for obj in objects:
            stored = await self.client.create(resource_of(obj), obj, self.namespace)
        return stored

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.client.get(resource, name, self.namespace)

    async def list(self, resource: Resource) -> list[Object]:
        return (await self.client.list(resource, self.namespace)).items

    async def edit(self, resource: Resource, name: str, change: Object, subresource: str = "") -> Object:
        return await self.client.patch(resource, name, change, self.namespace, subresource=subresource)

    async def annotate(self, resource: Resource, name: str, key: str, value: str | None) -> Object:
        return await self.edit(resource, name, {"metadata": {"annotations": {key: value}}})

    async def delete(self, resource: Resource, name: str) -> None:
        await self.client.delete(resource, name, self.namespace)

    async def remove(self, resource: Resource, name: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Deletes, and waits until it is gone."""
        await self.delete(resource, name)
        await self.gone(resource, name, seconds)

    async def gone(self, resource: Resource, name: str, seconds: float = PATIENCE_SECONDS) -> None:
        await gone(self.client, resource, name, self.namespace, seconds)

    # Questions and answers

    async def ask(self, name: str, pool: str = "pool", **options: Any) -> Object:
        """An IPClaim's address object."""
        await self.create(claim(name, pool, **options))
        return await self.address_of(name)

    async def ask_text(self, *names: str, pool: str = "pool") -> Sequence[str]:
        """One claim after the other; the addresses they got."""
        return [(await self.ask(name, pool))["spec"]["address"] for name in names]

    async def address_of(self, name: str, seconds: float = PATIENCE_SECONDS) -> Object:
        bound = await eventually(lambda: self._bound(kinds.CLAIM, name, "address"), seconds)
        return await self.get(kinds.ADDRESS, bound["name"])

    async def _bound(self, resource: Resource, name: str, field: str) -> Any:
        return ((await self.get(resource, name)).get("status") or {}).get(field)

    async def refused(self, name: str, pool: str = "pool", **options: Any) -> str:
        """An IPClaim's error message."""
        await self.create(claim(name, pool, **options))
        return await self.error_of(name)

    async def error_of(self, name: str, seconds: float = PATIENCE_SECONDS) -> str:
        return str(await eventually(lambda: self._bound(kinds.CLAIM, name, "errorMessage"), seconds))

    async def ask_capi(self, name: str, pool: str = "pool", **options: Any) -> Object:
        await self.create(capi_claim(name, pool, **options))
        return await self.capi_address_of(name)

    async def capi_address_of(self, name: str, seconds: float = PATIENCE_SECONDS) -> Object:
        bound = await eventually(lambda: self._bound(CAPI_CLAIM, name, "addressRef"), seconds)
        return await self.get(CAPI_ADDRESS, bound["name"])

    async def ready_of(self, name: str, seconds: float = PATIENCE_SECONDS) -> tuple[str, str, str]:
        """An IPAddressClaim's Ready condition: status, reason, message."""
        ready = await eventually(lambda: self._ready(name), seconds)
        return ready["status"], ready["reason"], ready["message"]

    async def _ready(self, name: str) -> Object:
        return meta.condition(await self.get(CAPI_CLAIM, name), "Ready") or {}

    async def indexes(self, pool: str = "pool") -> dict[str, str]:
        return dict((await self.get(kinds.POOL, pool)).get("status", {}).get("indexes") or {})

    async def shows(
        self, expected: Mapping[str, str], pool: str = "pool", seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Returns when the pool's `indexes` are these."""

        async def same() -> bool:
            found = await self.indexes(pool)
            assert found == dict(expected)
            return True

        await eventually(same, seconds)

    async def passed(self) -> None:
        """Returns when a newcomer on a pool of its own has been served: whatever was due before, is done."""
        stem = f"passed-{len(await self.list(kinds.POOL))}"
        spec = ranged({"start": "172.16.0.1", "end": "172.16.0.9"}, name_prefix=stem)
        labels = {kinds.WATCH_LABEL: "v"}
        await self.create(pool(stem, spec, labels=labels))
        await self.ask(stem, stem, labels=labels)


async def waits(world: World, name: str, reason: str) -> None:
    """For its pool: a condition says so, and not the field that Metal3's users take for final."""

    async def is_told() -> bool:
        status = (await world.get(kinds.CLAIM, name)).get("status") or {}
        ready = meta.find_condition(status.get("conditions") or [], "Ready") or {}
        assert set(status) <= {"conditions"}
        return (ready.get("status"), ready.get("reason")) == ("False", reason)

    await eventually(is_told)
