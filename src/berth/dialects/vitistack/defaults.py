"""A Service as it was sent → the Service as it will be stored, but for addresses that are still to be asked
for. Pure: random keys and names come in from outside.

    new Service        what is missing gets its default
    live Service       what is missing stays as it was; retention and deny go back to their defaults
    from before us     an address it shows already is asked for, and only if it is given are we its manager
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from berth.control.review import cut
from berth.dialects.vitistack import kinds, service_annotations
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.service_annotations import Families
from berth.errors import InvalidText
from berth.kube import meta
from berth.net import Address, parse_address

Object = dict[str, Any]
KEEPING = (kinds.ZONE, kinds.SECRET_NAME, kinds.FAMILY, kinds.SHARING_KEY)
STACKS = {"IPv4": Families.IPV4, "IPv6": Families.IPV6}


@dataclass(frozen=True, slots=True)
class Defaults:
    zone: str
    bare: bool
    new_key: Callable[[], str]


def placed(service: Object, namespace: str) -> Object:
    """An object may leave out the namespace that its URL says."""
    about = service.get("metadata") or {}
    if about.get("namespace"):
        return service
    return {**service, "metadata": {**about, "namespace": namespace}}


def is_load_balancer(service: Mapping[str, Any]) -> bool:
    return (service.get("spec") or {}).get("type") == "LoadBalancer"


def has_ours(service: Mapping[str, Any]) -> bool:
    return any(key.startswith(kinds.PREFIX) for key in meta.annotations(service))


def shown(service: Mapping[str, Any]) -> tuple[Address, ...]:
    """The addresses in its status, at most one of each family."""
    found: dict[Any, Address] = {}
    for entry in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
        try:
            address = parse_address(str(entry.get("ip", "")))
        except InvalidText:
            continue
        found.setdefault(address.family, address)
    return tuple(found.values())


def metallb_key(service: Mapping[str, Any]) -> str:
    """The one it shares its address with others by, from before us."""
    said = meta.annotations(service)
    return next((said[key] for key in kinds.METALLB_KEYS if said.get(key)), "")


def filled(service: Object, old: Object | None, defaults: Defaults) -> Object:
    """With every annotation there is, but perhaps without addresses. `old` is the live LoadBalancer."""
    given = meta.annotations(service)
    before = meta.annotations(old) if old is not None else {}
    values = {key: before[key] for key in KEEPING if key not in given and key in before}
    standard = {
        kinds.DENY: "false",
        kinds.FAMILY: family_of(service),
        kinds.RETENTION: "0",
        kinds.SECRET_NAME: kinds.DEFAULT_SECRET,
        kinds.ZONE: defaults.zone,
    }
    values |= {key: text for key, text in standard.items() if key not in given and key not in values}
    if kinds.SHARING_KEY not in given and kinds.SHARING_KEY not in values:
        values[kinds.SHARING_KEY] = defaults.new_key()
    return meta.with_annotations(_with_wanted_address(service), values)


def family_of(service: Mapping[str, Any]) -> Families:
    """The default follows what the user said in the spec."""
    spec = service.get("spec") or {}
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        return Families.DUAL
    return STACKS["IPv6"] if spec.get("ipFamilies") == ["IPv6"] else Families.IPV4


def _with_wanted_address(service: Object) -> Object:
    """`.spec.loadBalancerIP` is another way to name an address; MetalLB takes only one of the two."""
    asked = str((service.get("spec") or {}).get("loadBalancerIP") or "")
    if not asked:
        return service
    name = service["metadata"].get("name", "")
    by_field = service_annotations.read_addresses(asked, name)
    by_annotation = service_annotations.read_addresses(
        meta.annotations(service).get(kinds.ADDRESSES, ""), name
    )
    if by_annotation and not set(by_field) <= set(by_annotation):
        raise No(
            f".spec.loadBalancerIP {cut(asked)} and annotation {kinds.ADDRESSES} of Service {name} differ"
        )
    spec = {key: value for key, value in service["spec"].items() if key != "loadBalancerIP"}
    changes = {} if by_annotation else {kinds.ADDRESSES: asked}
    return meta.with_annotations({**service, "spec": spec}, changes)


def continued(service: Object, live: Object, defaults: Defaults) -> Object:
    """A live Service keeps its addresses in its zone: a family without one has what it had, and what it had
    of a family that it no longer wants leaves the list."""
    given, before = meta.annotations(service), meta.annotations(live)
    if given[kinds.ZONE] != before.get(kinds.ZONE):
        return service
    name = service["metadata"]["name"]
    wanted = service_annotations.read_families(given[kinds.FAMILY]).wanted
    had = service_annotations.listed(before)
    asked = service_annotations.read_addresses(given.get(kinds.ADDRESSES, ""), name)
    asked = tuple(one for one in asked if one.family in wanted or one not in had)
    there = {one.family for one in asked}
    kept = tuple(one for one in had if one.family in wanted and one.family not in there)
    now = (*asked, *kept)
    if set(now) == set(service_annotations.listed(given)) and given.get(kinds.ADDRESSES, "").strip():
        return service
    text = (
        before[kinds.ADDRESSES]
        if now and set(now) == set(had)
        else service_annotations.written(now, bare=defaults.bare)
    )
    return meta.with_annotations(service, {kinds.ADDRESSES: text})


def is_settled(service: Object, live: Object) -> bool:
    """Nothing changes that concerns the IPAM-API or MetalLB, and nothing is missing."""
    given = meta.annotations(service)
    there = {address.family for address in service_annotations.listed(given)}
    try:
        complete = there >= set(service_annotations.read_families(given[kinds.FAMILY]).wanted)
    except No:
        complete = True  # an older operator let it in; a change of something else is not held up for it
    return complete and service_annotations.same(meta.annotations(live), given)


def settled(service: Object, live: Object) -> Object:
    """As it was, but for MetalLB's annotations if somebody edited them, and a policy changed by hand."""
    given = meta.annotations(service)
    service = with_addresses(service, service_annotations.listed(given), bare=True)
    policy, spec = (live.get("spec") or {}).get("ipFamilyPolicy"), service["spec"]
    if policy and spec.get("ipFamilyPolicy") != policy:
        return {**service, "spec": {**spec, "ipFamilyPolicy": policy}}
    return service


def with_addresses(service: Object, addresses: tuple[Address, ...], bare: bool) -> Object:
    """The list as it stands if it says the same; else written anew. MetalLB's annotations always follow."""
    given = meta.annotations(service)
    text = given.get(kinds.ADDRESSES, "")
    if set(service_annotations.listed(given)) != set(addresses) or not text.strip():
        text = service_annotations.written(addresses, bare=bare)
    values = for_metallb(given[kinds.ZONE], addresses, given[kinds.SHARING_KEY])
    return meta.with_annotations(service, {kinds.ADDRESSES: text, **values})


def with_families(service: Object, families: Families, *, creating: bool) -> Object:
    """Policy, and on creation the families of an IPv6 Service; a contradiction is refused."""
    spec = dict(service.get("spec") or {})
    present = spec.get("ipFamilies") or []
    if families is not Families.DUAL and present and STACKS.get(present[0]) is not families:
        raise No(
            f".spec.ipFamilies of Service {service['metadata'].get('name', '')} starts with "
            f"{cut(str(present[0]))}, and annotation {kinds.FAMILY} says {families}: the first family of a "
            f"Service cannot be changed; {'leave one of them out' if creating else 'make a new Service'}"
        )
    if creating and families is Families.IPV6 and not present:
        spec["ipFamilies"] = ["IPv6"]
    spec["ipFamilyPolicy"] = families.policy
    return {**service, "spec": spec}


def without_metallb(service: Object) -> Object:
    return meta.with_annotations(service, dict.fromkeys((*kinds.METALLB, *kinds.OLD_METALLB)))


def misleads(service: Mapping[str, Any]) -> bool:
    """Whether MetalLB is told something else than a Service of ours lists. Order is no matter."""
    said = meta.annotations(service)
    addresses = service_annotations.listed(said)
    if not addresses or kinds.ZONE not in said or kinds.SHARING_KEY not in said:
        return False
    told = service_annotations.listed({kinds.ADDRESSES: said.get(kinds.METALLB_ADDRESSES, "")})
    names = (said.get(kinds.METALLB_POOL), said.get(kinds.METALLB_KEY))
    is_right = set(told) == set(addresses) and names == (said[kinds.ZONE], said[kinds.SHARING_KEY])
    return not is_right or any(key in said for key in kinds.OLD_METALLB)


def for_metallb(zone: str, addresses: tuple[Address, ...], key: str) -> dict[str, str | None]:
    """What MetalLB is to read; None: nothing there."""
    said = (zone, service_annotations.written(addresses, bare=True), key)
    return {**dict.fromkeys(kinds.OLD_METALLB), **dict(zip(kinds.METALLB, said, strict=True))}
