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
from functools import lru_cache
from math import ceil
from typing import Any

import orjson

from berth.control.informers import WatchSpec
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.service_annotations import MOST_DAYS, Terms
from berth.errors import InvalidText
from berth.leasing.holders import Identity
from berth.net import Address, parse_address

Object = dict[str, Any]
DAY_SECONDS = 24 * 3600.0
FORMERS = 8


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
    lived: bool = False  # its Service was there when this was written
    until: float = 0.0  # an admission under way may still store the Service
    retained_until: float = 0.0
    released: bool = False
    formers: tuple[str, ...] = ()  # UIDs of earlier Services that the entry may still be registered for
    place: str = field(default="", compare=False)  # the ConfigMap it lies in
    text: str = field(default="", compare=False)  # as it is written there

    @property
    def name(self) -> str:
        width = 8 if self.address.family == 4 else 32
        return f"record-{self.who.key}-{self.address.value:0{width}x}"

    @property
    def service(self) -> str:
        return f"{self.namespace}/{self.who.service_name}"

    def over(self, seen: Record | None) -> Record:
        """The same, written over what is there: as long as that was not released, the IPAM-API may know the
        entry by its UID and never hear of ours. The oldest was stored once, the newest may have been.
        """
        if seen is None or seen.released:
            return self
        uids = seen.formers if seen.uid in ("", self.uid) else (*seen.formers, seen.uid)
        return replace(self, formers=(*uids[:1], *uids[1:][1 - FORMERS :]))

    def recalling(self, seen: Record, now: float) -> Record:
        """The same for a Service that may never come to exist, written over what an earlier one left. As long
        as the address is owed to that one, who may share it and with which secret stays as it was: the
        controller takes over what the new one says once it is stored.
        """
        mine = replace(self, retained_until=seen.owed_until(now))
        if mine.retained_until <= now:
            return mine
        kept = self.kept or seen.secret != self.secret
        return replace(mine, key=seen.key, terms=seen.terms, secret=seen.secret, kept=kept)

    def is_over(self, now: float) -> bool:
        """Nobody's any more: only to be cleared away."""
        return self.released and self.retained_until <= now

    def is_under_way(self, now: float) -> bool:
        """Its Service may be stored any moment."""
        return self.until > now and not self.released and not self.lived

    def may_exclude(self, now: float, *, given: bool) -> bool:
        """Whether it may keep others from its address. What the IPAM-API gives was free there, whatever is
        still written here; only somebody who names it at this moment may not have been heard there yet.
        """
        return self.is_under_way(now) if given else not self.is_over(now)

    def owed_until(self, now: float) -> float:
        """How long the address is kept if the Service that asks for it now never comes to exist."""
        if self.released or (self.until and not self.lived):
            return self.retained_until
        return now + self.terms.retention_days * DAY_SECONDS if self.terms.retention_days else 0.0

    def owed(self, now: float) -> Terms:
        """The same as terms of a release: whole days, never less."""
        days = ceil((self.retained_until - now) / DAY_SECONDS)
        return Terms(min(max(0, days), MOST_DAYS), self.terms.deny)

    def written(self) -> str:
        return orjson.dumps(self._data()).decode()

    def _data(self) -> dict[str, str]:
        marks = ("kept", "replaced", "released", "lived")
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
            **({"formers": " ".join(self.formers)} if self.formers else {}),
            **{mark: "true" for mark in marks if getattr(self, mark)},
        }


def parse(obj: Object) -> Iterator[Record]:
    """The records in a ConfigMap. What was edited beyond recognition is left out, and left alone."""
    place = obj["metadata"]["name"]
    for text in (obj.get("data") or {}).values():
        if (record := _record(text, place)) is not None:
            yield record


@lru_cache(maxsize=8192)
def _record(text: str, place: str) -> Record | None:
    """Several listen to each change, and each reads it."""
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
            lived=data.get("lived") == "true",
            until=float(data.get("until", "0")),
            retained_until=float(data.get("retained-until", "0")),
            released=data.get("released") == "true",
            formers=tuple(data.get("formers", "").split()),
            place=place,
            text=text,
        )
    except (KeyError, TypeError, ValueError, InvalidText):
        return None


def watched(namespace: str) -> WatchSpec:
    return WatchSpec((kinds.CONFIG_MAP,), label_selector=f"{kinds.RECORD_LABEL}=true", namespace=namespace)


def body(name: str, namespace: str, records: Iterable[Record]) -> Object:
    about = {"name": name, "namespace": namespace, "labels": {kinds.RECORD_LABEL: "true"}}
    data = {record.name: record.written() for record in records}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
