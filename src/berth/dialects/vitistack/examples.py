"""How `berth up` shows Services whose address came from the IPAM-API; there is no MetalLB there."""

from __future__ import annotations

from berth.dialects.examples import ExampleRow, Examples, ExampleTable, Object, row, told_by_condition
from berth.dialects.vitistack.kinds import ADDRESSES, SERVICE, ZONE
from berth.dialects.vitistack.settings import VitistackSettings
from berth.kube import meta


def _service(service: Object) -> ExampleRow | None:
    if service["spec"].get("type") != "LoadBalancer" or service["spec"].get("loadBalancerClass"):
        return None
    annotations = meta.annotations(service)
    given = annotations.get(ADDRESSES, "") or told_by_condition(service.get("status") or {})
    return row(service, f"zone {annotations.get(ZONE, 'of the default')}", given)


EXAMPLES = Examples(
    tables=(ExampleTable("vitistack", SERVICE, _service),),
    plurals=("services",),
    namespaces=(VitistackSettings().namespace,),
    # Without MetalLB the addresses are in the annotations.
    settings=lambda api_url: VitistackSettings(api_url=api_url, metallb_namespace=""),
)
