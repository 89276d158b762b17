"""Every path of every dialect's webhooks, and for each a review as an API server would send it."""

from __future__ import annotations

import copy
import uuid
from dataclasses import dataclass
from typing import Any

import orjson

from berth.dialects.metal3 import admit as metal3_admit
from berth.dialects.metal3 import kinds as metal3
from berth.dialects.vip import admit as vip_admit
from berth.dialects.vip import kinds as vip
from berth.dialects.vitistack import kinds as vitistack
from berth.kube.resource import Resource

Object = dict[str, Any]
METAL3 = "ipam-metal3-io-v1alpha1"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a path is asked about."""

    path: str
    resource: Resource
    example: Object

    def object(self, namespace: str = "default", **fields: Any) -> Object:
        about = {"name": "one", **({"namespace": namespace} if self.resource.namespaced else {})}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {**about, "annotations": {}, "labels": {"a": "b"}, "uid": str(uuid.uuid4())},
            **copy.deepcopy(self.example),
            **fields,
        }

    def request(self, new: Object, old: Object | None = None) -> Object:
        of = self.resource
        return {
            "uid": str(uuid.uuid4()),
            "kind": {"group": of.group, "version": of.version, "kind": of.kind},
            "resource": {"group": of.group, "version": of.version, "resource": of.plural},
            "namespace": new["metadata"].get("namespace"),
            "name": new["metadata"]["name"],
            "operation": "CREATE" if old is None else "UPDATE",
            "userInfo": {"username": "ann", "groups": ["people"], "extra": {"scopes": ["all"]}},
            "object": new,
            "oldObject": old,
            "dryRun": False,
            "options": {"kind": "CreateOptions"},
        }


def enveloped(request: Any) -> bytes:
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


POOL: Object = {
    "spec": {
        "namePrefix": "a",
        "pools": [
            {"start": "10.0.0.1", "end": "10.0.0.9", "gateway": "10.0.0.1", "dnsServers": ["10.0.0.1"]}
        ],
        "preAllocations": {"c": "10.0.0.2"},
        "prefix": 24,
        "gateway": "10.0.0.1",
        "dnsServers": ["10.0.0.1"],
    },
    "status": {"indexes": {"c": "10.0.0.2"}},
}
CLAIM: Object = {
    "spec": {"pool": {"name": "p", "namespace": "default"}},
    "status": {"address": {"name": "x"}},
}
ADDRESS: Object = {
    "spec": {"pool": {"name": "p"}, "claim": {"name": "c"}, "address": "10.0.0.1", "prefix": 24}
}
VIRTUAL_IP: Object = {"spec": {"ip": "10.0.0.7", "service": "web"}, "status": {"state": "Valid"}}
SERVICE: Object = {
    "spec": {
        "type": "LoadBalancer",
        "ports": [{"port": 80, "protocol": "TCP", "name": "web"}],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "loadBalancerIP": "10.0.0.7",
        "externalTrafficPolicy": "Cluster",
        "selector": {"app": "web"},
    },
    "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.7"}]}},
}

EVERY = (
    *(
        Asked(f"/{verb}-{METAL3}-{kind}", resource, example)
        for verb in ("mutate", "validate")
        for kind, resource, example in (
            ("ippool", metal3.POOL, POOL),
            ("ipclaim", metal3.CLAIM, CLAIM),
            ("ipaddress", metal3.ADDRESS, ADDRESS),
        )
    ),
    Asked(vip_admit.IP_PATH, vip.IP, {"spec": {}}),
    Asked(vip_admit.VIRTUAL_IP_PATH, vip.VIRTUAL_IP, VIRTUAL_IP),
    Asked(vitistack.MUTATE_PATH, vitistack.SERVICE, SERVICE),
    Asked(vitistack.VALIDATE_PATH, vitistack.SERVICE, SERVICE),
)
assert {one.path for one in EVERY} >= set(metal3_admit.routes())
