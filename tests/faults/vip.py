"""LoadBalancer Services under faults. Groups and IP objects have cluster scope: rows with them take turns."""

from __future__ import annotations

from tests.faults.trade import Object, Shown, Snapshot, twice
from tests.support.operator import built, eventually
from tests.support.vip import service

from berth.dialects.vip import kinds
from berth.errors import NotFound
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

GROUP = "fault-group"


class Vip:
    dialect = "vip"
    shares_cluster = True
    page: Resource | None = None
    resources: tuple[Resource, ...] = (kinds.SERVICE, kinds.IP, kinds.IPGROUP)

    async def open(self, client: Client, namespace: str, size: int) -> None:
        await client.create(kinds.IPGROUP, built(kinds.IPGROUP, GROUP, _spec(size)))

    async def resize(self, client: Client, namespace: str, size: int) -> None:
        await client.patch(kinds.IPGROUP, GROUP, {"spec": _spec(size)})

    async def close(self, client: Client, namespace: str) -> None:
        await take_away(client, namespace, kinds.SERVICE, kinds.IP, kinds.IPGROUP)

    def claim(self, name: str) -> tuple[Resource, Object]:
        return kinds.SERVICE, service(name)

    def shown(self, seen: Snapshot) -> list[Shown]:
        return [_shown(one) for one in load_balancers(seen)]

    def broken(self, seen: Snapshot) -> list[str]:
        shown = self.shown(seen)
        owners = _owners(seen)
        lost = [
            f"I3: {one.name} shows {one.answer}, which is {owners.get(one.answer, 'gone')}'s"
            for one in shown
            if one.answer and not one.going and owners.get(one.answer, "").partition("/")[2] != one.name
        ]
        return [*twice(shown), *lost]

    def litter(self, seen: Snapshot) -> list[str]:
        answers = {one.name: one.answer for one in self.shown(seen)}
        owners = _owners(seen)
        return [
            f"I2: {address} is held for {owner}, which shows {answers.get(owner.partition('/')[2])!r}"
            for address, owner in owners.items()
            if answers.get(owner.partition("/")[2]) != address
        ]

    def used(self, seen: Snapshot) -> int | None:
        return len(seen[kinds.IP.key])


def _spec(size: int) -> Object:
    """A segment is a CIDR: the first `size` hosts of it are left, the others excluded."""
    length = 32 - (size + 1).bit_length()
    excluded = [f"10.0.{number // 256}.{number % 256}" for number in range(size + 1, 1 << (32 - length))]
    return {"segment": f"10.0.0.0/{length}", "excludedIPs": ["10.0.0.0", *excluded]}


def _owners(seen: Snapshot) -> dict[str, str]:
    """Address → namespace/name of its Service; one without is nobody's."""
    found = seen[kinds.IP.key]
    return {one["metadata"]["name"]: meta.annotations(one).get(kinds.OWNER, "") for one in found}


def _shown(service: Object) -> Shown:
    waits = meta.condition(service, kinds.CONDITION) or {}
    name, reason = service["metadata"]["name"], waits.get("message", "")
    return Shown(name, meta.uid(service), addresses(service), meta.is_deleting(service), reason)


def load_balancers(seen: Snapshot) -> list[Object]:
    return [one for one in seen[kinds.SERVICE.key] if one["spec"].get("type") == "LoadBalancer"]


def addresses(service: Object) -> str:
    entries = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    return ",".join(entry["ip"] for entry in entries)


async def take_away(client: Client, namespace: str, *resources: Resource) -> None:
    """Everything, by force: the next try starts from nothing."""
    for resource in resources:
        for obj in (await client.list(resource, namespace)).items:
            await _remove(client, resource, obj)


async def _remove(client: Client, resource: Resource, obj: Object) -> None:
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace", "")
    try:
        await client.delete(resource, name, namespace)
        if meta.finalizers(obj):
            await client.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
    except NotFound:
        return

    async def is_gone() -> bool:
        return name not in {one["metadata"]["name"] for one in (await client.list(resource, namespace)).items}

    await eventually(is_gone)
