"""How `berth up` shows Services of IPGroups, which have a class of their own there, and old VirtualIPs."""

from __future__ import annotations

from berth.dialects.examples import ExampleRow, Examples, ExampleTable, Object, row, told_by_condition
from berth.dialects.view import shown_by
from berth.dialects.vip.kinds import OWN_CLASS, SERVICE, VIRTUAL_IP
from berth.dialects.vip.settings import VipSettings


def _service(service: Object) -> ExampleRow | None:
    """Services with a class: berth up gives this dialect one of its own."""
    if service["spec"].get("type") != "LoadBalancer" or not service["spec"].get("loadBalancerClass"):
        return None
    status = service.get("status") or {}
    return row(service, "IPGroup", shown_by(status) or told_by_condition(status))


def _virtual_ip(vip: Object) -> ExampleRow:
    status = vip.get("status") or {}
    return row(vip, "GroupSegmentMapping", status.get("ip") or status.get("message", ""))


def _with_class(obj: Object) -> Object:
    """One cluster serves all dialects there, so these Services have to say whose they are."""
    if (obj.get("spec") or {}).get("type") == "LoadBalancer":
        obj["spec"].setdefault("loadBalancerClass", OWN_CLASS)
    return obj


EXAMPLES = Examples(
    tables=(
        ExampleTable("vip", SERVICE, _service),
        ExampleTable("vip, VirtualIPs", VIRTUAL_IP, _virtual_ip),
    ),
    plurals=("ipgroups", "ips", "services"),
    old_kinds=("GroupSegmentMapping", "VirtualIP"),
    applied=_with_class,
    settings=lambda api_url: VipSettings(classes=(OWN_CLASS,)),
)
