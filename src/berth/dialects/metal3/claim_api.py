"""What differs between the two pairs of claim and address kinds that draw from an IPPool.

Decisions, names and life are the same for both; only the fields and references of the objects differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from berth.dialects.metal3.translate import Netconfig
from berth.kube import meta
from berth.net import Block

Object = dict[str, Any]
READY = "Ready"  # the condition of either claim
# Reasons of a pool that serves nobody new, whatever is free in it.
POOL_NOT_READY = {"PoolNotFound", "PoolDeleting", "PoolInvalid", "ClusterNotFound"}


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Written:
    """What is written into an address object."""

    name: str
    address: str
    netconfig: Netconfig


class Flavour(Protocol):
    kind: str  # of the claim
    claim_finalizer: str
    address_finalizer: str

    def pool_key(self, claim: Object) -> str | None: ...
    def foreign_namespace(self, claim: Object) -> str | None: ...
    def cluster_name(self, claim: Object) -> str | None: ...
    def pool_of_address(self, address: Object) -> str | None: ...
    def claim_of_address(self, address: Object) -> str: ...
    def netconfig_fault(self, netconfig: Netconfig, block: Block) -> str | None: ...
    def bound_name(self, claim: Object) -> str: ...
    def address_object(self, claim: Object, pool: Object, written: Written) -> Object: ...
    def bound_status(self, claim: Object, record: Object) -> Object: ...
    def refused_status(self, claim: Object, reason: str, message: str) -> Object: ...


def holder(flavour: Flavour, namespace: str, name: str) -> str:
    """The key under which a claim holds its lease; the kind is part of it, so two APIs never share one."""
    return f"{flavour.kind}/{namespace}/{name}"


def made_for(flavour: Flavour, address: Object) -> str | None:
    """UID of the claim an operator made this object for; None for one made by hand."""
    group = address["apiVersion"].partition("/")[0]
    for owner in meta.owners(address):
        if owner.get("kind") == flavour.kind and str(owner.get("apiVersion", "")).startswith(f"{group}/"):
            return str(owner["uid"])
    return None
