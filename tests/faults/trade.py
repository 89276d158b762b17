"""What a dialect is to the fault bench: how to ask and drop, and what a snapshot of it may not show.

A snapshot is all kinds at one revision of the store, so that nothing seen is between two moments. The checks
on it are pure: the end of a row, the auditor's process and the planted bugs' tests share them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from berth.errors import Gone, NotFound
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]
Snapshot = Mapping[str, list[Object]]  # by the resource's key
NOTE = "example.com/note"  # the annotation that carries a market's word


@dataclass(frozen=True, slots=True)
class Shown:
    """A claim as its user sees it: its name, UID, and the addresses or block its status shows."""

    name: str
    uid: str
    answer: str  # empty: none yet
    going: bool
    reason: str = ""  # why it has none, where it says so


class Trade(Protocol):
    """One dialect's words for the same few things."""

    dialect: str
    shares_cluster: bool  # its pools have cluster scope: one market at a time
    resources: tuple[Resource, ...]
    page: Resource | None  # where the whole ledger is one object, written whenever somebody comes or goes

    async def open(self, client: Client, namespace: str, size: int) -> None: ...
    async def resize(self, client: Client, namespace: str, size: int) -> None: ...
    async def close(self, client: Client, namespace: str) -> None: ...
    def claim(self, name: str) -> tuple[Resource, Object]: ...
    def shown(self, seen: Snapshot) -> list[Shown]: ...
    def broken(self, seen: Snapshot) -> list[str]: ...
    def litter(self, seen: Snapshot) -> list[str]: ...
    def used(self, seen: Snapshot) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Market:
    """One trade in one namespace."""

    trade: Trade
    client: Client
    namespace: str
    word: str = ""
    load: Callable[[], float] = lambda: 1.0
    first_seen: dict[str, str] = field(default_factory=dict)  # UID → the first answer its claim showed

    @property
    def patience(self) -> float:
        """Of those who begin to wait now."""
        return self.load()

    async def ask(self, name: str, **metadata: Any) -> None:
        resource, body = self.trade.claim(name)
        about = {"name": name, "namespace": self.namespace, "annotations": {NOTE: self.word}}
        body["metadata"] |= {**about, **metadata}
        await self.client.create(resource, body, self.namespace)

    async def drop(self, name: str) -> None:
        resource, _ = self.trade.claim(name)
        try:
            await self.client.delete(resource, name, self.namespace)
        except NotFound:
            return

    async def exists(self, name: str) -> bool:
        resource, _ = self.trade.claim(name)
        try:
            await self.client.get(resource, name, self.namespace)
        except NotFound:
            return False
        return True

    async def snapshot(self) -> Snapshot:
        return await snapshot(self.client, self.trade.resources, self.namespace)

    async def shown(self) -> dict[str, Shown]:
        return self.note(await self.snapshot())

    def note(self, seen: Snapshot) -> dict[str, Shown]:
        found = self.trade.shown(seen)
        for one in found:
            if one.answer:
                self.first_seen.setdefault(one.uid, one.answer)
        return {one.name: one for one in found}

    async def all_answered(self, names: Iterable[str]) -> bool:
        found = await self.shown()
        return all(name in found and bool(found[name].answer) for name in names)

    async def answered(self) -> int:
        return sum(1 for one in (await self.shown()).values() if one.answer and not one.going)

    async def violations(self) -> list[str]:
        """Once everything is at rest: I1, I2, I3 and I5."""
        seen = await self.snapshot()
        return [*self.wrong(seen), *self.trade.litter(seen)]

    def wrong(self, seen: Snapshot) -> list[str]:
        """At any moment: I1, I3 and I5."""
        before = dict(self.first_seen)
        now = self.note(seen)
        moved = [
            f"I5: {one.name} had {before[one.uid]} and has {one.answer or 'nothing'}"
            for one in now.values()
            if not one.going and one.uid in before and one.answer != before[one.uid]
        ]
        return [*self.trade.broken(seen), *moved]


def claim_kinds(trade: Trade) -> set[str]:
    return {trade.claim(name)[0].key for name in ("a", "k")}


def twice(shown: Iterable[Shown]) -> list[str]:
    """I1, where an answer is one address or more, separated by commas."""
    holders: dict[str, list[str]] = defaultdict(list)
    for one in shown:
        for address in one.answer.split(",") if one.answer and not one.going else ():
            holders[address].append(one.name)
    return [f"I1: {address} has {who}" for address, who in holders.items() if len(who) > 1]


async def snapshot(client: Client, resources: Iterable[Resource], namespace: str) -> Snapshot:
    """All kinds as of one revision."""
    return (await snapshot_at(client, resources, namespace))[0]


async def snapshot_at(client: Client, resources: Iterable[Resource], namespace: str) -> tuple[Snapshot, int]:
    """And the revision. One that is gone before we are through: once more."""
    while True:
        try:
            return await _snapshot(client, resources, namespace)
        except Gone:
            continue


async def _snapshot(client: Client, resources: Iterable[Resource], namespace: str) -> tuple[Snapshot, int]:
    found: dict[str, list[Object]] = {}
    params: dict[str, str] = {}
    for resource in resources:
        listing = await client.raw("GET", resource.path(namespace), params=params)
        params = {
            "resourceVersion": listing["metadata"]["resourceVersion"],
            "resourceVersionMatch": "Exact",
        }
        found[resource.key] = listing["items"]
    return found, int(params["resourceVersion"])


def is_going(obj: Object) -> bool:
    return meta.is_deleting(obj)
