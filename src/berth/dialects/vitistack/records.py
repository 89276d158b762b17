"""What we registered at the IPAM-API, written down before we ask: one record per Service and address.

A record holds what it takes to give the address back when the Service, its namespace and its Secret are gone,
and it is how every replica knows what is whose. It outlives the Service until the release is confirmed, and
then, where retention applies, until that has passed: so that a refused request never shortens it, and no
other namespace takes over a retained address. Records that come together lie in one ConfigMap, each under its
name; `filing.py` puts them there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from berth.control.mirror import Watched
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.wish import Terms
from berth.errors import InvalidText
from berth.leasing.holders import Identity
from berth.net import Address, parse_address

Object = dict[str, Any]


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
    place: str = field(default="", compare=False)  # the ConfigMap it lies in
    text: str = field(default="", compare=False)  # as it is written there

    @property
    def name(self) -> str:
        width = 8 if self.address.family == 4 else 32
        return f"record-{self.who.key}-{self.address.value:0{width}x}"

    @property
    def service(self) -> str:
        return f"{self.namespace}/{self.who.service_name}"

    def written(self) -> str:
        return orjson.dumps(self._data()).decode()

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


def parse(obj: Object) -> Iterator[Record]:
    """The records in a ConfigMap. What was edited beyond recognition is left out, and left alone."""
    for text in (obj.get("data") or {}).values():
        if (record := _record(text)) is not None:
            yield replace(record, place=obj["metadata"]["name"], text=text)


def _record(text: str) -> Record | None:
    try:
        data = orjson.loads(text)
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
        )
    except (KeyError, TypeError, ValueError, InvalidText):
        return None


def watched(namespace: str) -> Watched:
    return Watched((kinds.CONFIG_MAP,), label_selector=f"{kinds.RECORD_LABEL}=true", namespace=namespace)


def body(name: str, namespace: str, records: Iterable[Record]) -> Object:
    about = {"name": name, "namespace": namespace, "labels": {kinds.RECORD_LABEL: "true"}}
    data = {record.name: record.written() for record in records}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
