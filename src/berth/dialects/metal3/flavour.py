"""What differs between the two pairs of claim and address kinds that draw from an IPPool.

Decisions, names and life are the same for both; only the fields and references of the objects differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from berth.dialects.metal3.translate import Netconfig

Object = dict[str, Any]


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
    guard_status: bool

    def pool_key(self, claim: Object) -> str | None: ...
    def foreign_namespace(self, claim: Object) -> str | None: ...
    def cluster_name(self, claim: Object) -> str | None: ...
    def pool_of_address(self, address: Object) -> str | None: ...
    def claim_of_address(self, address: Object) -> str: ...
    def netconfig_fault(self, netconfig: Netconfig) -> str | None: ...
    def is_bound(self, claim: Object) -> bool: ...
    def address_object(self, claim: Object, pool: Object, written: Written) -> Object: ...
    def bound_status(self, claim: Object, record: Object) -> Object: ...
    def refused_status(self, claim: Object, reason: str, message: str) -> Object: ...


def holder(flavour: Flavour, namespace: str, name: str) -> str:
    """The key under which a claim holds its lease; the kind is part of it, so two APIs never share one."""
    return f"{flavour.kind}/{namespace}/{name}"
