"""The first pair: IPClaim and IPAddress of ipam.metal3.io."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from berth.dialects.metal3 import kinds
from berth.dialects.metal3.claim_api import POOL_NOT_READY, READY, Written, utc_now
from berth.dialects.metal3.translate import Netconfig
from berth.kube import meta
from berth.net import Block

Object = dict[str, Any]


class Native:
    kind = "IPClaim"
    claim_finalizer = kinds.CLAIM_FINALIZER
    address_finalizer = kinds.ADDRESS_FINALIZER

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now

    def pool_key(self, claim: Object) -> str | None:
        """The pool a claim names, in the claim's own namespace; a claim is never served from another."""
        pool = (claim.get("spec") or {}).get("pool") or {}
        return f"{claim['metadata']['namespace']}/{pool['name']}" if pool.get("name") else None

    def foreign_namespace(self, claim: Object) -> str | None:
        namespace = claim["spec"]["pool"].get("namespace")
        return namespace if namespace and namespace != claim["metadata"]["namespace"] else None

    def cluster_name(self, claim: Object) -> str | None:
        return None  # Metal3's claims belong to whatever cluster their pool belongs to

    def pool_of_address(self, address: Object) -> str | None:
        name = (address["spec"].get("pool") or {}).get("name")
        return f"{address['metadata']['namespace']}/{name}" if name else None

    def claim_of_address(self, address: Object) -> str:
        return str((address["spec"].get("claim") or {}).get("name", ""))

    def netconfig_fault(self, netconfig: Netconfig, block: Block) -> str | None:
        return None  # passed through as the pool says it

    def bound_name(self, claim: Object) -> str:
        """The address object the claim's status names; empty while there is none."""
        return str(((claim.get("status") or {}).get("address") or {}).get("name", ""))

    def address_object(self, claim: Object, pool: Object, written: Written) -> Object:
        namespace = pool["metadata"]["namespace"]
        netconfig = written.netconfig
        spec: Object = {
            "address": written.address,
            "pool": {"name": pool["metadata"]["name"], "namespace": namespace},
            "claim": {"name": claim["metadata"]["name"], "namespace": namespace},
        }
        if netconfig.prefix is not None:
            spec["prefix"] = netconfig.prefix
        if netconfig.gateway is not None:
            spec["gateway"] = netconfig.gateway
        if netconfig.dns_servers:
            spec["dnsServers"] = list(netconfig.dns_servers)
        metadata: Object = {
            "name": written.name,
            "namespace": namespace,
            "finalizers": [self.address_finalizer],
            "ownerReferences": [meta.owner_reference(pool), meta.owner_reference(claim)],
        }
        if labels := meta.labels(claim):
            metadata["labels"] = dict(labels)
        return {
            "apiVersion": kinds.ADDRESS.api_version,
            "kind": "IPAddress",
            "metadata": metadata,
            "spec": spec,
        }

    def bound_status(self, claim: Object, record: Object) -> Object:
        reference = {"name": record["metadata"]["name"], "namespace": record["metadata"]["namespace"]}
        status = {**(claim.get("status") or {}), "address": reference}
        status.pop("errorMessage", None)
        return self._with_ready(claim, status, "True", "AddressAllocated", record["spec"]["address"])

    def refused_status(self, claim: Object, reason: str, message: str) -> Object:
        """Metal3's users take errorMessage for final: what is wrong with the pool does not stand there."""
        status = dict(claim.get("status") or {})
        if reason in POOL_NOT_READY:
            status.pop("errorMessage", None)
        else:
            status["errorMessage"] = message
        return self._with_ready(claim, status, "False", reason, message)

    def _with_ready(self, claim: Object, status: Object, value: str, reason: str, message: str) -> Object:
        """Upstream's fields say all but the reason. A claim that upstream, or an earlier version, answered in
        the same way is left as it is: an upgrade writes no settled claim again."""
        conditions = status.get("conditions") or []
        is_answered = status == claim.get("status") and reason not in POOL_NOT_READY
        if is_answered and meta.find_condition(conditions, READY) is None:
            return status
        ready: Object = {"type": READY, "status": value, "reason": reason, "message": message}
        if (generation := claim["metadata"].get("generation")) is not None:
            ready["observedGeneration"] = generation
        return {**status, "conditions": meta.with_condition(conditions, ready, self._now())}
