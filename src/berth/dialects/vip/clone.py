"""The keepalived era's clone: a ClusterIP copy of the Service with the address as its external IP. Pure."""

from __future__ import annotations

from typing import Any

from berth.dialects.vip import kinds
from berth.kube import meta, patch

Object = dict[str, Any]
COPIED_ONCE = ("ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "trafficDistribution")
COPIED = ("selector", "sessionAffinity", "sessionAffinityConfig", "publishNotReadyAddresses")
# kubectl would take the clone for what it once applied as the original.
NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration", kinds.MIGRATING, kinds.WANTED_ADDRESS)


def clone_name(vip: Object) -> str:
    return f"{vip['metadata']['name']}{kinds.CLONE_SUFFIX}"


def is_clone_of(service: Object, vip: Object) -> bool:
    return meta.is_owned_by(service, meta.uid(vip))


def new_clone(vip: Object, original: Object, address: str) -> Object:
    spec = {key: original["spec"][key] for key in COPIED_ONCE if key in original["spec"]}
    followed = _followed(original)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": clone_name(vip),
            "namespace": vip["metadata"]["namespace"],
            "ownerReferences": [meta.owner_reference(vip)],
            **followed["metadata"],
        },
        "spec": {**spec, **followed["spec"], "type": "ClusterIP", "externalIPs": [address]},
    }


def follow(clone: Object, original: Object) -> Object | None:
    """The patch after which the clone is again what its original is; None if it is."""
    wanted = _followed(original)
    present_spec = {key: clone["spec"].get(key) for key in (*COPIED, "ports")}
    present = {
        "labels": dict(meta.labels(clone)),
        "annotations": dict(meta.annotations(clone)),
    }
    changes = {
        "metadata": patch.diff(present, wanted["metadata"]),
        "spec": patch.diff(present_spec, wanted["spec"]),
    }
    found = {key: change for key, change in changes.items() if change is not None}
    return found or None


def _followed(original: Object) -> Object:
    spec = {key: original["spec"][key] for key in COPIED if key in original["spec"]}
    spec["ports"] = [_port(port) for port in original["spec"].get("ports") or ()]
    annotations = {k: v for k, v in meta.annotations(original).items() if k not in NOT_COPIED}
    return {"metadata": {"labels": dict(meta.labels(original)), "annotations": annotations}, "spec": spec}


def _port(port: Object) -> Object:
    return {key: value for key, value in port.items() if key != "nodePort"}
