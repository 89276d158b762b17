"""The second pair: Cluster API's IPAddressClaim and IPAddress, with `poolRef` to a metal3 IPPool.

v1beta2 is spoken where it is served. Against an older Cluster API (v1beta1) conditions are written in the
old form, with a severity.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from berth.dialects.metal3 import kinds
from berth.dialects.metal3.claim_api import POOL_NOT_READY, READY, Written, utc_now
from berth.dialects.metal3.translate import NOT_CREATED, Netconfig
from berth.kube import meta
from berth.leasing.model import Reason
from berth.net import Block

Object = dict[str, Any]
# Cluster API reserves three words for a claim that is not ready, and its users know no others. Our own word
# for the cause is in the Event, the metrics and the log.
RESERVED: dict[str, str] = {
    **dict.fromkeys((Reason.POOL_EXHAUSTED, Reason.PIN_OUTSIDE), "PoolExhausted"),
    **dict.fromkeys(POOL_NOT_READY, "PoolNotReady"),
}


class Capi:
    kind = "IPAddressClaim"
    claim_finalizer = kinds.CAPI_CLAIM_FINALIZER
    address_finalizer = kinds.CAPI_ADDRESS_FINALIZER

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now

    def pool_key(self, claim: Object) -> str | None:
        """None for claims of other providers' pools: those are not looked at at all."""
        return _pool_key(claim)

    def foreign_namespace(self, claim: Object) -> str | None:
        return None  # a poolRef has no namespace

    def cluster_name(self, claim: Object) -> str | None:
        return claim["spec"].get("clusterName") or meta.labels(claim).get(kinds.CLUSTER_LABEL)

    def pool_of_address(self, address: Object) -> str | None:
        return _pool_key(address)

    def claim_of_address(self, address: Object) -> str:
        return str((address["spec"].get("claimRef") or {}).get("name", ""))

    def netconfig_fault(self, netconfig: Netconfig, block: Block) -> str | None:
        """Cluster API refuses such an object; said here, it is the same where its webhook is away."""
        prefix = netconfig.prefix or 0
        if not 0 <= prefix <= 128:
            return "Invalid prefix value, it must be between 0 and 128"
        return None if prefix <= block.family.width else NOT_CREATED

    def bound_name(self, claim: Object) -> str:
        return str(((claim.get("status") or {}).get("addressRef") or {}).get("name", ""))

    def address_object(self, claim: Object, pool: Object, written: Written) -> Object:
        spec: Object = {
            "address": written.address,
            "prefix": written.netconfig.prefix or 0,
            "claimRef": {"name": claim["metadata"]["name"]},
            "poolRef": {"apiGroup": kinds.GROUP, "kind": "IPPool", "name": pool["metadata"]["name"]},
        }
        if written.netconfig.gateway is not None:
            spec["gateway"] = written.netconfig.gateway
        metadata: Object = {
            "name": written.name,
            "namespace": pool["metadata"]["namespace"],
            "finalizers": [self.address_finalizer],
            "ownerReferences": [
                {**meta.owner_reference(pool, block=True), "controller": False},
                meta.owner_reference(claim, controller=True, block=True),
            ],
        }
        if labels := meta.labels(claim):
            metadata["labels"] = dict(labels)
        return {
            "apiVersion": claim["apiVersion"],
            "kind": "IPAddress",
            "metadata": metadata,
            "spec": spec,
        }

    def bound_status(self, claim: Object, record: Object) -> Object:
        status = {**(claim.get("status") or {}), "addressRef": {"name": record["metadata"]["name"]}}
        return self._with_ready(claim, status, "True", "AddressAllocated", "")

    def refused_status(self, claim: Object, reason: str, message: str) -> Object:
        word = RESERVED.get(reason, "AllocationFailed")
        return self._with_ready(claim, dict(claim.get("status") or {}), "False", word, message)

    def _with_ready(self, claim: Object, status: Object, value: str, reason: str, message: str) -> Object:
        ready: Object = {"type": READY, "status": value, "reason": reason, "message": message}
        if _is_old(claim):
            if value == "False":
                ready["severity"] = "Error"
            if not message:
                del ready["message"]  # the old schema refuses an empty one, the new one wants it
        else:
            generation = claim["metadata"].get("generation")
            if generation is not None:
                ready["observedGeneration"] = generation
        status["conditions"] = meta.with_condition(status.get("conditions") or [], ready, self._now())
        return status


def _is_old(claim: Object) -> bool:
    return str(claim["apiVersion"]).endswith("/v1beta1")


def _pool_key(obj: Object) -> str | None:
    ref = (obj.get("spec") or {}).get("poolRef") or {}
    if ref.get("apiGroup") != kinds.GROUP or ref.get("kind") != "IPPool" or not ref.get("name"):
        return None
    return f"{obj['metadata']['namespace']}/{ref['name']}"
