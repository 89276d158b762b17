"""What `berth up` has to know of a dialect to show its examples: how they are applied, and what to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from berth.errors import KubeError
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]


class ExampleRow(NamedTuple):
    kind: str
    name: str  # with its namespace
    source: str
    given: str


@dataclass(frozen=True, slots=True)
class ExampleTable:
    """One kind of claim: where to look, and how to read what it asked and got."""

    title: str
    resource: Resource
    read: Callable[[Object], ExampleRow | None]  # None: it is another dialect's

    async def rows(self, client: Client) -> list[ExampleRow]:
        try:
            items = (await client.list(self.resource)).items
        except KubeError:
            return []
        return [row for row in map(self.read, items) if row is not None]


@dataclass(frozen=True, slots=True)
class Examples:
    tables: tuple[ExampleTable, ...] = ()
    plurals: tuple[str, ...] = ()  # what is worth a `kubectl get`
    old_kinds: tuple[str, ...] = ()  # only an old cluster has them: our webhooks refuse new ones
    namespaces: tuple[str, ...] = ()  # that have to be there
    applied: Callable[[Object], Object] = lambda obj: obj  # an example, as it is where all dialects run
    taken_for_granted: Callable[[Sequence[Object]], list[Object]] = lambda examples: []
    # By the address of the IPAM-API: what the dialect is told here.
    settings: Callable[[str], object] | None = None


def row(obj: Object, source: str, given: str) -> ExampleRow:
    name = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
    return ExampleRow(obj["kind"], name, source, given)


def told_by_condition(status: Object) -> str:
    """What a condition says about a claim that got nothing."""
    said = [c for c in status.get("conditions") or [] if c.get("status") == "False" and c.get("message")]
    return f"waits: {said[0]['message']}" if said else ""


def place(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", "default"), obj["metadata"].get("name", "")
