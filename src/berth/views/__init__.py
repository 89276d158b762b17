"""Read-only looks at a live cluster, all dialects alike: pools, leases, adoption, explanations.

Each dialect's file answers three questions from plain lists; nothing here writes or watches. What a setting
of the operator changes, the same setting changes here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from berth.errors import NotFound
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.settings import ALL_DIALECTS, Settings

Object = dict[str, Any]
DEFAULTS = Settings(dialects=ALL_DIALECTS)


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


@dataclass(frozen=True, slots=True)
class Views:
    dialect: str
    pools: Callable[[Client, Settings], Awaitable[list[PoolRow]]]
    leases: Callable[[Client, Settings], Awaitable[list[LeaseRow]]]
    findings: Callable[[Client, Settings], Awaitable[list[Finding]]]


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
