"""`berth explain KIND/NAME`: what a claim has, or why it waits, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from berth.dialects.kubipam.kinds import REQUEST
from berth.dialects.metal3.kinds import CAPI_CLAIMS, CLAIM, PAUSED
from berth.dialects.vip.kinds import CONDITION, SERVICE, VIRTUAL_IP
from berth.dialects.vitistack import kinds as vitistack_kinds
from berth.errors import NotFound, UserError
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.settings import Settings
from berth.views import DEFAULTS, Object, PoolRow, vitistack
from berth.views.every import every

NO_ANSWER = "has no answer yet; is the operator running with its dialect?"
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
    events = await _events(client, obj)
    answer = (_of_zone if dialect == vitistack.NAME else _answer)(obj, settings, events)
    pools = [
        row
        for views in every(settings)
        if views.dialect == dialect and not _not_served(obj, settings)
        for row in await views.pools(client, settings)
        if _considered(row, obj, dialect, settings)
    ]
    pools += [row for row in _named_pools(obj, dialect) if row.name not in {found.name for found in pools}]
    return Explanation(f"{resource.kind} {namespace}/{name}", answer, pools, list(map(_line, events)))


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
    return row.name in {named.name for named in _named_pools(obj, dialect)}


def _named_pools(obj: Object, dialect: str) -> list[PoolRow]:
    """The pool that a claim or request names, as if it were not there."""
    spec, namespace = obj.get("spec") or {}, obj["metadata"]["namespace"]
    reference = spec.get("pool") or spec.get("poolRef") or spec.get("ipam") or {}
    if not reference.get("name"):
        return []
    kind = "IPAMRange" if dialect == "kubipam" else reference.get("kind") or "IPPool"
    name = f"{reference.get('namespace') or namespace}/{reference['name']}"
    ours = kind in ("IPPool", "IPAMRange")
    return [PoolRow(dialect, kind, name, 0, 0, 0, "does not exist" if ours else "is another provider's")]


def _answer(obj: Object, settings: Settings, events: list[Object]) -> str:
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
    if PAUSED in meta.annotations(obj):
        return f"is paused: take the annotation {PAUSED} away"
    return _not_served(obj, settings) or _warned(events) or NO_ANSWER


def _warned(events: list[Object]) -> str:
    """The newest warning: not every kind has a place for it in its status."""
    warnings = [event for event in events if event.get("type") == "Warning"]
    return f"waits: {warnings[-1].get('reason')}, {warnings[-1].get('message')}" if warnings else ""


def _of_zone(service: Object, settings: Settings, events: list[Object]) -> str:
    """What the IPAM-API gave is in the annotations; whether MetalLB serves it, in the status."""
    if told := _not_served(service, settings):
        return told
    zone = vitistack.zone_of(service, settings)
    given = meta.annotations(service).get(vitistack_kinds.ADDRESSES, "")
    if not given and (alone := vitistack.left_alone(service, settings)):
        return f"gets no address: {alone}"
    if not given:
        return _warned(events) or f"waits: the IPAM-API has given it no address of zone {zone} yet"
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


async def _events(client: Client, obj: Object) -> list[Object]:
    """About it, the newest last."""
    about = obj["metadata"]
    selector = f"involvedObject.uid={about['uid']}"
    listing = await client.list(EVENTS, about["namespace"], field_selector=selector)
    return sorted(listing.items, key=lambda event: event.get("lastTimestamp") or "")


def _line(event: Object) -> str:
    return f"{event.get('lastTimestamp')} {event.get('type')} {event.get('reason')}: {event.get('message')}"
