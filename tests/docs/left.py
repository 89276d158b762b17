"""What the pages about replacing a system find: its objects, its Deployment and its webhooks, and the records
of an IPAM-API.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support import metal3, vip
from tests.support.mongo import KEY, START, exported
from tests.support.operator import crds_of, install
from tests.support.upstreams import EACH, PLACE, leave_kubipam, leave_metal3, leave_vip

from berth.dialects.vitistack import kinds
from berth.kube.client import Client

Object = dict[str, Any]

# The Deployment that a page stops, by the page's name, and the webhook configurations it takes away or over.
DEPLOYMENTS = {
    "kubipam": ("kube-system", "kubipam"),
    "metal3": ("metal3-ipam-system", "ipam-controller-manager"),
    "vip": ("vip-allocator-operator", "vip-allocator-operator-controller-manager"),
    "vitistack": ("ipam-system", "ipam-controller-manager"),
}
CONFIGURATIONS = {
    "vip": {"Validating": "vip-allocator-operator-validating-webhook-configuration"},
    "vitistack": {
        "Mutating": "ipam-mutating-webhook-configuration",
        "Validating": "ipam-validating-webhook-configuration",
    },
}
INJECT = "cert-manager.io/inject-ca-from"


async def leave_objects(client: Client, system: str) -> None:
    await install(client, crds_of("metal3", "kubipam", "vip"))  # waits until they are served
    if system == "metal3":
        await leave_metal3(metal3.World(client, PLACE))
    if system == "kubipam":
        await leave_kubipam(client)
    if system == "vip":
        await leave_vip(vip.World(client, PLACE))


def leave_program(system: str) -> str:
    """Commands that make what upstream's manifests would have made."""
    namespace, name = DEPLOYMENTS[system]
    lines = [
        f"kubectl get namespace {namespace} || kubectl create namespace {namespace}",
        f"kubectl -n {namespace} create deployment {name} --image=upstream",
    ]
    if system == "vitistack":
        lines += [
            f"kubectl -n {namespace} create secret generic default --from-literal=secret=of-the-cluster",
            f"kubectl create -f - <<'END'\n{json.dumps(_list(map(_service, range(EACH))))}\nEND",
        ]
    for kind, called in CONFIGURATIONS.get(system, {}).items():
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration"}
        about = {"name": called, "annotations": {INJECT: "ipam-system/ipam-serving-cert"}}
        lines.append(f"kubectl create -f - <<'END'\n{json.dumps({**body, 'metadata': about})}\nEND")
    return "\n".join(lines)


def _list(items: Iterable[Object]) -> Object:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def _service(number: int) -> Object:
    """As Vitistack's operator leaves one."""
    words = {"zone": "inet", "addresses": f"83.118.168.{number}", "secret": "default"}
    words |= {"retention-period-days": "0", "deny-external-cleanup": "false"}
    words |= {"allow-local-shared-ip": f"key-{number}"}
    about = {
        "name": f"web-{number}",
        "annotations": {kinds.PREFIX + key: text for key, text in words.items()},
    }
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


def leave_records(directory: Path) -> None:
    """A `mongoexport` of upstream's records, and the file that opens their secrets."""
    keys = {"enc_key": KEY.decode(), "enc_iv": START.decode()}
    (directory / "encryption.json").write_text(json.dumps(keys))
    (directory / "addresses.json").write_text(exported())
