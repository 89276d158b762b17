"""`berth explain KIND/NAME`: why a claim waits, or got what it got, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from berth.dialects.kubipam.kinds import REQUEST
from berth.dialects.metal3.kinds import CAPI_CLAIMS, CLAIM
from berth.dialects.vip.kinds import CONDITION, SERVICE, VIRTUAL_IP
from berth.dialects.vitistack import kinds as vitistack_kinds
from berth.errors import NotFound, UserError
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.views import Object, PoolRow, vitistack
from berth.views.every import every

EVENTS = Resource("", "v1", "Event", "events")
# By the word of the command: whose it is, and the versions it may be served in.
KINDS: dict[str, tuple[str, tuple[Resource, ...]]] = {
    "ipclaim": ("metal3", (CLAIM,)),
    "ipaddressclaim": ("metal3", CAPI_CLAIMS),
    "ipamrequest": ("kubipam", (REQUEST,)),
    "virtualip": ("vip", (VIRTUAL_IP,)),
    "service": ("vip", (SERVICE,)),  # or vitistack's: its annotations tell
}


@dataclass(frozen=True, slots=True)
class Explanation:
    what: str
    answer: str
    pools: list[PoolRow]
    events: list[str]


async def explain(client: Client, what: str, namespace: str, api_url: str = "") -> Explanation:
    kind, _, name = what.partition("/")
    if kind.lower() not in KINDS or not name:
        raise UserError(f"write KIND/NAME with a kind out of {', '.join(KINDS)}, not {what!r}.")
    dialect, versions = KINDS[kind.lower()]
    obj, resource = await _found(client, versions, name, namespace), versions[0]
    if resource.kind == "Service" and vitistack.is_ours(obj):
        dialect = vitistack.NAME
    answer = _of_zone(obj) if dialect == vitistack.NAME else _answer(obj)
    pools = [row for views in every(api_url) if views.dialect == dialect for row in await views.pools(client)]
    chosen = [row for row in pools if _considered(row, obj, dialect)]
    return Explanation(f"{resource.kind} {namespace}/{name}", answer, chosen, await _events(client, obj))


async def _found(client: Client, versions: tuple[Resource, ...], name: str, namespace: str) -> Object:
    for resource in versions:
        try:
            return await client.get(resource, name, namespace)
        except NotFound:
            continue  # or the server has only another version of it
    raise UserError(f"there is no {versions[0].kind} {namespace}/{name}.")


def _not_served(obj: Object) -> str:
    """Why no dialect looks at a Service, as far as the object itself tells; empty: one may."""
    spec = obj.get("spec") or {}
    if obj.get("kind") != "Service":
        return ""
    if spec.get("type") != "LoadBalancer":
        return f"gets no address: it is of type {spec.get('type')}, and only LoadBalancer is served"
    if of_class := spec.get("loadBalancerClass"):
        return f"has no answer yet: {of_class} is served where --vip-classes or --vitistack-classes names it"
    return ""


def _considered(row: PoolRow, obj: Object, dialect: str) -> bool:
    if dialect == vitistack.NAME:
        return row.name.partition("/")[0] == vitistack.zone_of(obj)
    wanted = _pool_names(obj)
    return not wanted or row.name in wanted


def _pool_names(obj: Object) -> set[str]:
    """The pools it names; empty: any."""
    spec, namespace = obj.get("spec") or {}, obj["metadata"]["namespace"]
    reference = spec.get("pool") or spec.get("poolRef") or spec.get("ipam") or {}
    name = reference.get("name")
    return {f"{reference.get('namespace') or namespace}/{name}"} if name else set()


def _answer(obj: Object) -> str:
    status = obj.get("status") or {}
    if given := _given(status):
        return f"has {given}"
    if status.get("errorMessage"):
        return f"waits: {status['errorMessage']}"
    if status.get("state"):
        return f"waits: {status['state']}, {status.get('message', '')}".rstrip(", ")
    for condition in status.get("conditions") or []:
        if condition.get("status") == "False" or condition.get("type") == CONDITION:
            return f"waits: {condition.get('reason')}, {condition.get('message', '')}".rstrip(", ")
    return _not_served(obj) or "has no answer yet; is the operator running with its dialect?"


def _of_zone(service: Object) -> str:
    """What the IPAM-API gave is in the annotations; whether MetalLB serves it, in the status."""
    zone = vitistack.zone_of(service)
    given = meta.annotations(service).get(vitistack_kinds.ADDRESSES, "")
    if not given:
        return f"waits: the IPAM-API has given it no address of zone {zone} yet"
    if _given(service.get("status") or {}):
        return f"has {given} of zone {zone}"
    return f"was given {given} of zone {zone}; MetalLB does not serve it yet, if there is one"


def _given(status: Object) -> str:
    ingress = (status.get("loadBalancer") or {}).get("ingress") or []
    return (
        (status.get("address") or {}).get("name", "")
        or (status.get("addressRef") or {}).get("name", "")
        or (status.get("cidr", "") if status.get("state") == "Ready" else "")
        or ", ".join(entry.get("ip", "") for entry in ingress)
        or status.get("ip", "")
    )


async def _events(client: Client, obj: Object) -> list[str]:
    meta = obj["metadata"]
    listing = await client.list(EVENTS, meta["namespace"], field_selector=f"involvedObject.uid={meta['uid']}")
    told = sorted(listing.items, key=lambda event: event.get("lastTimestamp") or "")
    return [f"{e.get('lastTimestamp')} {e.get('type')} {e.get('reason')}: {e.get('message')}" for e in told]
