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
from berth.settings import Settings
from berth.views import DEFAULTS, Object, PoolRow, vitistack
from berth.views.every import every

EVENTS = Resource("", "v1", "Event", "events")
# By the word of the command: whose it is, and the versions it may be served in.
KINDS: dict[str, tuple[str, tuple[Resource, ...]]] = {
    "ipclaim": ("metal3", (CLAIM,)),
    "ipaddressclaim": ("metal3", CAPI_CLAIMS),
    "ipamrequest": ("kubipam", (REQUEST,)),
    "virtualip": ("vip", (VIRTUAL_IP,)),
    "service": ("vip", (SERVICE,)),  # or vitistack's: its class or its annotations tell
}
SHORT = {"svc": "service", "vip": "virtualip", "ipreq": "ipamrequest"}  # kubectl's


@dataclass(frozen=True, slots=True)
class Explanation:
    what: str
    answer: str
    pools: list[PoolRow]
    events: list[str]


def named(what: str) -> tuple[str, str]:
    """The word of a kind, as in KINDS, and a name."""
    kind, _, name = what.partition("/")
    word = SHORT.get(kind.lower(), kind.lower().removesuffix("s"))
    if word not in KINDS or not name:
        raise UserError(f"write KIND/NAME with a kind out of {', '.join(KINDS)}, not {what!r}.")
    return word, name


async def explain(client: Client, what: str, namespace: str, settings: Settings = DEFAULTS) -> Explanation:
    word, name = named(what)
    dialect, versions = KINDS[word]
    obj, resource = await _found(client, versions, name, namespace), versions[0]
    if resource.kind == "Service":
        dialect = _serving(obj, settings)
    answer = _of_zone(obj, settings) if dialect == vitistack.NAME else _answer(obj, settings)
    pools = [
        row
        for views in every(settings)
        if views.dialect == dialect and not _not_served(obj, settings)
        for row in await views.pools(client, settings)
        if _considered(row, obj, dialect, settings)
    ]
    return Explanation(f"{resource.kind} {namespace}/{name}", answer, pools, await _events(client, obj))


def _serving(service: Object, settings: Settings) -> str:
    """Whose a Service is: where its class does not tell, its annotations do."""
    of_class = (service.get("spec") or {}).get("loadBalancerClass") or ""
    told = (of_class in settings.vip_classes, of_class in settings.vitistack_classes)
    if told[0] != told[1]:
        return "vip" if told[0] else vitistack.NAME
    return vitistack.NAME if vitistack.is_ours(service) else "vip"


async def _found(client: Client, versions: tuple[Resource, ...], name: str, namespace: str) -> Object:
    for resource in versions:
        try:
            return await client.get(resource, name, namespace)
        except NotFound:
            continue  # or the server has only another version of it
    raise UserError(f"there is no {versions[0].kind} {namespace}/{name}.")


def _not_served(obj: Object, settings: Settings) -> str:
    """Why no dialect looks at a Service; empty: one may."""
    spec = obj.get("spec") or {}
    if obj.get("kind") != "Service":
        return ""
    if spec.get("type") != "LoadBalancer":
        return f"gets no address: it is of type {spec.get('type')}, and only LoadBalancer is served"
    of_class = spec.get("loadBalancerClass") or ""
    if of_class not in (*settings.vip_classes, *settings.vitistack_classes):
        what = of_class or "a Service without a loadBalancerClass"
        return f"has no answer yet: {what} is served where --vip-classes or --vitistack-classes names it"
    return ""


def _considered(row: PoolRow, obj: Object, dialect: str, settings: Settings) -> bool:
    if dialect == vitistack.NAME:
        return row.name.partition("/")[0] == vitistack.zone_of(obj, settings)
    if dialect == "vip":
        return row.kind == ("GroupSegmentMapping" if obj["kind"] == "VirtualIP" else "IPGroup")
    wanted = _pool_names(obj)
    return not wanted or row.name in wanted


def _pool_names(obj: Object) -> set[str]:
    """The pools it names; empty: any."""
    spec, namespace = obj.get("spec") or {}, obj["metadata"]["namespace"]
    reference = spec.get("pool") or spec.get("poolRef") or spec.get("ipam") or {}
    name = reference.get("name")
    return {f"{reference.get('namespace') or namespace}/{name}"} if name else set()


def _answer(obj: Object, settings: Settings) -> str:
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
    return _not_served(obj, settings) or "has no answer yet; is the operator running with its dialect?"


def _of_zone(service: Object, settings: Settings) -> str:
    """What the IPAM-API gave is in the annotations; whether MetalLB serves it, in the status."""
    if told := _not_served(service, settings):
        return told
    zone = vitistack.zone_of(service, settings)
    given = meta.annotations(service).get(vitistack_kinds.ADDRESSES, "")
    if not given and (alone := vitistack.left_alone(service, settings)):
        return f"gets no address: {alone}"
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
