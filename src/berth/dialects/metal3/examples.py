"""How `berth up` shows IPClaims and Cluster API's claims; the Cluster that a pool names has to be there."""

from __future__ import annotations

from collections.abc import Sequence

from berth.dialects.examples import ExampleRow, Examples, ExampleTable, Object, place, row, told_by_condition
from berth.dialects.metal3.kinds import CAPI_CLAIMS, CLAIM, CLUSTERS

INFRASTRUCTURE = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Metal3Cluster"}


def _ipclaim(claim: Object) -> ExampleRow:
    status = claim.get("status") or {}
    given = (status.get("address") or {}).get("name", "") or status.get("errorMessage", "")
    return row(claim, f"IPPool {claim['spec']['pool']['name']}", given)


def _ipaddressclaim(claim: Object) -> ExampleRow:
    status = claim.get("status") or {}
    reference = claim["spec"]["poolRef"]
    given = (status.get("addressRef") or {}).get("name", "") or told_by_condition(status)
    return row(claim, f"{reference['kind']} {reference['name']}", given)


def _clusters(examples: Sequence[Object]) -> list[Object]:
    """Those that a pool names and no example brings."""
    brought = {place(obj) for obj in examples if obj["kind"] == "Cluster"}
    named = {(place(obj)[0], _cluster_name(obj)) for obj in examples if _cluster_name(obj)}
    return [_cluster(*found) for found in sorted(named - brought)]


def _cluster_name(obj: Object) -> str:
    return str((obj.get("spec") or {}).get("clusterName") or "") if obj["kind"] == "IPPool" else ""


def _cluster(namespace: str, name: str) -> Object:
    """As little of a Cluster as a pool wants to see."""
    meta = {"name": name, "namespace": namespace}
    spec = {"paused": False, "infrastructureRef": {**INFRASTRUCTURE, "name": name}}
    return {"apiVersion": CLUSTERS[0].api_version, "kind": "Cluster", "metadata": meta, "spec": spec}


EXAMPLES = Examples(
    tables=(
        ExampleTable("metal3", CLAIM, _ipclaim),
        ExampleTable("metal3, Cluster API's claims", CAPI_CLAIMS[0], _ipaddressclaim),
    ),
    plurals=("ippools", "ipclaims"),
    taken_for_granted=_clusters,
)
