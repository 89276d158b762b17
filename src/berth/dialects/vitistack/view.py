"""LoadBalancer Services with an address from the IPAM-API: their annotations are what the cluster knows.

A zone is shared by many clusters, so how full it is only the IPAM-API can say: its metrics do, where its
address is known. Without it a zone shows what this cluster holds of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from berth.central.client import trusting
from berth.dialects.view import (
    DEFAULTS,
    Finding,
    LeaseRow,
    Object,
    PoolRow,
    Question,
    View,
    name_of,
    objects,
    shown_by,
    warned,
)
from berth.dialects.vitistack import kinds, service_annotations
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.settings import VitistackSettings
from berth.errors import NotFound, UserError
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.http.transport import why
from berth.net import Address
from berth.settings import Settings

NAME = "vitistack"
ASK_SECONDS = 10.0
SERIES = {"berth_zone_addresses": "total", "berth_zone_addresses_used": "used"}
SERIES |= {"berth_zone_addresses_free": "free"}


def is_ours(service: Object) -> bool:
    """A LoadBalancer with an annotation of this dialect: its webhooks write them on every one they admit."""
    load_balancer = (service.get("spec") or {}).get("type") == "LoadBalancer"
    return load_balancer and any(key.startswith(kinds.PREFIX) for key in meta.annotations(service))


def zone_of(service: Object, settings: Settings) -> str:
    return meta.annotations(service).get(kinds.ZONE, settings.of(VitistackSettings).zone)


async def _services(client: Client, settings: Settings) -> list[Object]:
    found = await objects(client, kinds.SERVICE, namespace=settings.namespace)
    return [service for service in found if is_ours(service)]


def _held(services: Iterable[Object]) -> list[tuple[Object, Address]]:
    return [
        (one, address) for one in services for address in service_annotations.listed(meta.annotations(one))
    ]


# MetalLbPools and leases


async def pools(client: Client, settings: Settings = DEFAULTS) -> list[PoolRow]:
    if settings.of(VitistackSettings).api_url:
        return await _asked_zones(settings)
    different = {(zone_of(one, settings), at) for one, at in _held(await _services(client, settings))}
    counted = Counter(f"{zone}/ipv{int(address.family)}" for zone, address in different)
    state = "in this cluster; --api-url tells of all"
    return [PoolRow(NAME, "zone", zone, 0, used, 0, state) for zone, used in sorted(counted.items())]


async def _asked_zones(settings: Settings) -> list[PoolRow]:
    root = settings.of(VitistackSettings).api_url.rstrip("/").removesuffix("/v2")
    try:
        timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                f"{root}/metrics", ssl=trusting(settings.of(VitistackSettings).api_ca_file) or True
            ) as answer,
        ):
            answer.raise_for_status()
            return _zone_rows(await answer.text())
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        cause = why(_inner(error))
        raise UserError(f"the IPAM-API at {root} does not tell how full its zones are: {cause}.") from None


def _inner(error: Exception) -> Exception:
    """What aiohttp wraps: its own words name neither cause nor cure."""
    for name in ("os_error", "certificate_error"):
        if isinstance(cause := getattr(error, name, None), Exception):
            return cause
    return error


def _zone_rows(series: str) -> list[PoolRow]:
    found: dict[str, dict[str, int]] = {}
    for family in text_string_to_metric_families(series):
        if family.name in SERIES:
            for sample in family.samples:
                zone = f"{sample.labels['zone']}/ipv{sample.labels['family'].removeprefix('ipv')}"
                found.setdefault(zone, {})[SERIES[family.name]] = int(sample.value)
    return [PoolRow(NAME, "zone", zone, **counts, state="") for zone, counts in sorted(found.items())]


async def leases(client: Client, settings: Settings = DEFAULTS) -> list[LeaseRow]:
    return [
        LeaseRow(
            NAME, service_annotations.host(address), f"Service {name_of(service)}", zone_of(service, settings)
        )
        for service, address in _held(await _services(client, settings))
    ]


# Adoption


async def findings(client: Client, settings: Settings = DEFAULTS) -> list[Finding]:
    services = sorted(await _services(client, settings), key=_age)
    keys: dict[Address, tuple[str, str]] = {}  # the oldest Service with an address, and its key for sharing
    return [
        Finding(
            NAME,
            f"Service {name_of(service)}",
            left_alone(service, settings)
            or _unreadable(service)
            or _clash(service, keys)
            or await _without_secret(client, service, settings),
        )
        for service in services
    ]


def _age(service: Object) -> tuple[str, str]:
    return service["metadata"]["creationTimestamp"], name_of(service)


def left_alone(service: Object, settings: Settings) -> str:
    """Why the operator with these settings would not look at it; empty: it would."""
    of_class = service["spec"].get("loadBalancerClass") or ""
    if service["metadata"]["namespace"] in settings.of(VitistackSettings).excluded:
        return "its namespace is left alone; see --vitistack-excluded"
    if of_class not in settings.of(VitistackSettings).classes:
        what = f"its class {of_class}" if of_class else "a Service without a class"
        return f"{what} is served only where --vitistack-classes says so"
    return ""


def _unreadable(service: Object) -> str:
    annotations = meta.annotations(service)
    try:
        service_annotations.read_addresses(annotations.get(kinds.ADDRESSES, ""), name_of(service))
    except No as no:
        return no.message
    if service_annotations.terms_or_none(annotations) is None:
        return "its retention or its deny-external-cleanup is no value; correct the annotation"
    return ""


def _clash(service: Object, keys: dict[Address, tuple[str, str]]) -> str:
    key = meta.annotations(service).get(kinds.SHARING_KEY, "")
    for address in service_annotations.listed(meta.annotations(service)):
        other, theirs = keys.setdefault(address, (name_of(service), key))
        if other != name_of(service) and (not key or key != theirs):
            return (
                f"has {address} as Service {other}, with another key for sharing: MetalLB serves one of them"
            )
    return ""


async def _without_secret(client: Client, service: Object, settings: Settings) -> str:
    named = meta.annotations(service).get(kinds.SECRET_NAME, kinds.DEFAULT_SECRET)
    own = named != kinds.DEFAULT_SECRET
    namespace = service["metadata"]["namespace"] if own else settings.of(VitistackSettings).namespace
    try:
        secret = await client.get(kinds.SECRET, named, namespace)
    except NotFound:
        return f"its Secret {namespace}/{named} is missing: without it the address cannot be given back"
    if kinds.SECRET_KEY not in (secret.get("data") or {}):
        return f"its Secret {namespace}/{named} has no key {kinds.SECRET_KEY!r}"
    return ""


# Explanations


def answer(asked: Question) -> str:
    """What the IPAM-API gave is in the annotations; whether MetalLB serves it, in the status."""
    if asked.unserved:
        return asked.unserved
    zone = zone_of(asked.obj, asked.settings)
    given = meta.annotations(asked.obj).get(kinds.ADDRESSES, "")
    if not given and (alone := left_alone(asked.obj, asked.settings)):
        return f"gets no address: {alone}"
    if not given:
        return warned(asked.events) or f"waits: the IPAM-API has given it no address of zone {zone} yet"
    if shown_by(asked.status):
        return f"has {given} of zone {zone}"
    return f"was given {given} of zone {zone}; MetalLB does not serve it yet, if there is one"


def considers(row: PoolRow, service: Object, settings: Settings) -> bool:
    return row.name.partition("/")[0] == zone_of(service, settings)


VIEW = View(
    kinds={"service": (kinds.SERVICE,)},
    short={"svc": "service"},
    pools=pools,
    leases=leases,
    findings=findings,
    answer=answer,
    considers=considers,
    is_ours=is_ours,
)
