"""What we registered at the IPAM-API, written down before we ask: one ConfigMap per Service and address.

A record holds what it takes to give the address back when the Service, its namespace and its Secret are gone,
and it is how every replica knows what is whose. It outlives the Service until the release is confirmed, and
then, where retention applies, until that has passed: so that a refused request never shortens it, and no
other namespace takes over a retained address.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from berth.control.cache import IndexKeys
from berth.control.mirror import Kept, Watched
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.wish import Terms
from berth.errors import AlreadyExists, InvalidText, NotFound
from berth.kube.client import Client
from berth.leasing.holders import Identity
from berth.net import Address, parse_address

Object = dict[str, Any]
TRIES = 5


@dataclass(frozen=True, slots=True)
class Record:
    namespace: str
    who: Identity
    zone: str
    address: Address
    secret: str  # the word in the annotation: `default` or the name of the user's Secret
    key: str  # for sharing
    terms: Terms
    uid: str = ""  # of the Service
    kept: bool = False  # a copy of the secret's value is in our namespace under the record's name
    confirmed: bool = True  # False: the IPAM-API gave no answer yet
    replaced: bool = False  # the secret was changed and the object may not show it yet
    until: float = 0.0  # an admission under way may still store the Service
    retained_until: float = 0.0
    released: bool = False
    version: str = ""

    @property
    def name(self) -> str:
        width = 8 if self.address.family == 4 else 32
        return f"record-{self.who.key}-{self.address.value:0{width}x}"

    @property
    def service(self) -> str:
        return f"{self.namespace}/{self.who.service_name}"

    def body(self, namespace: str) -> Object:
        about = {"name": self.name, "namespace": namespace, "labels": {kinds.RECORD_LABEL: "true"}}
        if self.version:
            about["resourceVersion"] = self.version
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": self._data()}

    def _data(self) -> dict[str, str]:
        marks = ("kept", "replaced", "released")
        return {
            "namespace": self.namespace,
            "service": self.who.service_name,
            "namespace-id": self.who.namespace_id,
            "cluster-id": self.who.cluster_id,
            "uid": self.uid,
            "zone": self.zone,
            "address": str(self.address),
            "secret": self.secret,
            "key": self.key,
            "retention-days": str(self.terms.retention_days),
            "deny": str(self.terms.deny).lower(),
            "until": f"{self.until:.0f}",
            "retained-until": f"{self.retained_until:.0f}",
            "confirmed": str(self.confirmed).lower(),
            **{mark: "true" for mark in marks if getattr(self, mark)},
        }


def parse(obj: Object) -> Record | None:
    """None for what was edited beyond recognition: it is told in the log and left alone."""
    data = obj.get("data") or {}
    try:
        return Record(
            namespace=data["namespace"],
            who=Identity(data["service"], data["namespace-id"], data["cluster-id"]),
            zone=data["zone"],
            address=parse_address(data["address"]),
            secret=data["secret"],
            key=data.get("key", ""),
            terms=Terms(int(data.get("retention-days", "0")), data.get("deny") == "true"),
            uid=data.get("uid", ""),
            kept=data.get("kept") == "true",
            confirmed=data.get("confirmed") != "false",
            replaced=data.get("replaced") == "true",
            until=float(data.get("until", "0")),
            retained_until=float(data.get("retained-until", "0")),
            released=data.get("released") == "true",
            version=obj["metadata"].get("resourceVersion", ""),
        )
    except (KeyError, ValueError, InvalidText):
        return None


def watched(namespace: str) -> Watched:
    indexes: dict[str, IndexKeys] = {"service": _services, "address": _addresses}
    return Watched(
        (kinds.CONFIG_MAP,), indexes, label_selector=f"{kinds.RECORD_LABEL}=true", namespace=namespace
    )


def _services(obj: Object) -> Iterable[str]:
    data = obj.get("data") or {}
    return (f"{data.get('namespace', '')}/{data.get('service', '')}",)


def _addresses(obj: Object) -> Iterable[str]:
    return ((obj.get("data") or {}).get("address", ""),)


class Records:
    def __init__(self, client: Client, kept: Kept, namespace: str) -> None:
        self._client = client
        self._kept = kept
        self._namespace = namespace

    async def ready(self) -> None:
        await self._kept.known.wait()

    def of_service(self, namespace: str, name: str) -> list[Record]:
        return _parsed(self._kept.cache.by("service", f"{namespace}/{name}"))

    def of_address(self, address: Address) -> list[Record]:
        return _parsed(self._kept.cache.by("address", str(address)))

    def every(self) -> list[Record]:
        return _parsed(self._kept.cache)

    def seen(self, name: str) -> Record | None:
        """As the watch shows it: perhaps a moment old."""
        obj = self._kept.cache.get(self._namespace, name)
        return parse(obj) if obj is not None else None

    async def find(self, name: str) -> Record | None:
        """As it is stored now."""
        try:
            return parse(await self._client.get(kinds.CONFIG_MAP, name, self._namespace))
        except NotFound:
            return None

    async def put(self, record: Record) -> Record | None:
        """Writes it, whatever is there; what was there before comes back."""
        for _ in range(TRIES):
            with suppress(AlreadyExists):
                await self._create(record)
                return None
            before = await self.find(record.name)
            with suppress(NotFound):
                await self.save(replace(record, version=before.version if before else ""))
                return before
        raise AlreadyExists(409, f"record {record.name} changes too often")

    async def _create(self, record: Record) -> None:
        plain = replace(record, version="")
        self._observe(await self._client.create(kinds.CONFIG_MAP, plain.body(self._namespace)))

    async def save(self, record: Record) -> None:
        """Conflict if it changed since it was read."""
        self._observe(await self._client.replace(kinds.CONFIG_MAP, record.body(self._namespace)))

    async def drop(self, record: Record) -> None:
        """Conflict if it changed since it was read; gone already is fine."""
        with suppress(NotFound):
            await self._client.delete(
                kinds.CONFIG_MAP, record.name, self._namespace, resource_version=record.version
            )
        self._kept.cache.bury(record.body(self._namespace))

    def _observe(self, obj: Object) -> None:
        self._kept.cache.observe(obj)


def _parsed(objects: Iterable[Object]) -> list[Record]:
    return [record for record in map(parse, objects) if record is not None]
