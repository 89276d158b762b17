"""Read-only looks at a live cluster, all dialects alike: pools, leases, adoption, explanations.

Each dialect's view.py answers from plain lists; nothing there writes or watches. What a setting of the
operator changes, the same setting changes here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from berth.errors import NotFound
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.settings import Settings

Object = dict[str, Any]
DEFAULTS = Settings()
NO_ANSWER = "has no answer yet; is the operator running with its dialect?"


class PoolRow(NamedTuple):
    dialect: str
    kind: str
    name: str
    total: int
    used: int
    free: int
    state: str  # empty: fine


class LeaseRow(NamedTuple):
    dialect: str
    address: str
    holder: str
    pool: str


class Finding(NamedTuple):
    """One object of an existing installation: taken over as it is, or not, and why."""

    dialect: str
    what: str
    problem: str  # empty: taken over


class Question(NamedTuple):
    """What `berth explain` was asked about, and what was found around it."""

    obj: Object
    settings: Settings
    events: list[Object]  # about it, the newest last
    unserved: str  # why no dialect looks at it; empty: one may

    @property
    def status(self) -> Object:
        return self.obj.get("status") or {}


async def nothing(client: Client, settings: Settings) -> list[Any]:
    return []


@dataclass(frozen=True, slots=True)
class View:
    """What a dialect shows of itself; without anything, nothing."""

    # By the word of `berth explain`: the versions it may be served in; and kubectl's short names of those.
    kinds: Mapping[str, tuple[Resource, ...]] = field(default_factory=dict)
    short: Mapping[str, str] = field(default_factory=dict)
    pools: Callable[[Client, Settings], Awaitable[list[PoolRow]]] = nothing
    leases: Callable[[Client, Settings], Awaitable[list[LeaseRow]]] = nothing
    findings: Callable[[Client, Settings], Awaitable[list[Finding]]] = nothing
    answer: Callable[[Question], str] = lambda asked: NO_ANSWER  # what a claim has, or why it waits
    considers: Callable[[PoolRow, Object, Settings], bool] = lambda row, claim, settings: True
    named_pool: Callable[[Object], PoolRow | None] = lambda claim: None  # as if it were not there
    is_ours: Callable[[Object], bool] = lambda obj: False  # where another dialect serves the kind too


async def objects(client: Client, *versions: Resource, namespace: str = "") -> list[Object]:
    """Everything of a kind, in the first version that is served; nothing where its CRD is missing.

    `namespace` is the operator's: only what is in it, and what is in none.
    """
    for resource in versions:
        try:
            return (await client.list(resource, namespace if resource.namespaced else "")).items
        except NotFound:
            continue
    return []


def state_of(pool: Object, odd: str = "") -> str:
    """What is not as it should be with a pool, in a few words; empty: fine."""
    return "; ".join(filter(None, ("is being deleted" if meta.is_deleting(pool) else "", odd)))


def name_of(obj: Object) -> str:
    about = obj["metadata"]
    return f"{about['namespace']}/{about['name']}" if about.get("namespace") else str(about["name"])


def waits(*told: str | None) -> str:
    return f"waits: {', '.join(str(part) for part in told)}".rstrip(", ")


def warned(events: list[Object]) -> str:
    """The newest warning: not every kind has a place for it in its status."""
    warnings = [event for event in events if event.get("type") == "Warning"]
    return f"waits: {warnings[-1].get('reason')}, {warnings[-1].get('message')}" if warnings else ""


def shown_by(status: Object) -> str:
    """The addresses of a Service, as its load balancer shows them."""
    ingress = (status.get("loadBalancer") or {}).get("ingress") or []
    return ", ".join(entry.get("ip", "") for entry in ingress)
