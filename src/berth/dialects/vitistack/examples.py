"""How `berth up` shows Services whose address came from the IPAM-API; there is no MetalLB there."""

from __future__ import annotations

from berth.dialects.examples import ExampleRow, Examples, ExampleTable, Object, row, told_by_condition
from berth.dialects.vitistack.kinds import ADDRESSES, SERVICE, ZONE
from berth.kube import meta

NAMESPACE = "ipam-system"


def _service(service: Object) -> ExampleRow | None:
    if service["spec"].get("type") != "LoadBalancer" or service["spec"].get("loadBalancerClass"):
        return None
    annotations = meta.annotations(service)
    given = annotations.get(ADDRESSES, "") or told_by_condition(service.get("status") or {})
    return row(service, f"zone {annotations.get(ZONE, 'of the default')}", given)


EXAMPLES = Examples(
    tables=(ExampleTable("vitistack", SERVICE, _service),),
    plurals=("services",),
    namespaces=(NAMESPACE,),
    settings=lambda api_url: {
        "api_url": api_url,
        "vitistack_namespace": NAMESPACE,
        "metallb_namespace": "",  # there is none: addresses are in the annotations
    },
    environment=lambda api_url: {"BERTH_API_URL": api_url},
)
