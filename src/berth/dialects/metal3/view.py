"""IPPools and their addresses, of both APIs, as a person wants to see them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from berth.dialects.metal3 import kinds
from berth.dialects.metal3.claim_api import Flavour, holder, made_for
from berth.dialects.metal3.ipaddressclaim import Capi
from berth.dialects.metal3.ipclaim import Native
from berth.dialects.metal3.settings import Metal3Settings
from berth.dialects.metal3.translate import read_pool
from berth.dialects.view import (
    DEFAULTS,
    NO_ANSWER,
    Finding,
    LeaseRow,
    Object,
    PoolRow,
    Question,
    View,
    name_of,
    objects,
    state_of,
    waits,
    warned,
)
from berth.errors import InvalidText
from berth.kube import meta
from berth.kube.client import Client
from berth.leasing.space import Space
from berth.net import Block, parse_block
from berth.settings import Settings

Owned = tuple[Flavour, Object]


async def _addresses(client: Client, namespace: str) -> list[Owned]:
    native, capi = Native(), Capi()
    found: list[Owned] = [(native, a) for a in await objects(client, kinds.ADDRESS, namespace=namespace)]
    theirs = await objects(client, *kinds.CAPI_ADDRESSES, namespace=namespace)
    return found + [(capi, a) for a in theirs if capi.pool_of_address(a)]


async def _claims(client: Client, namespace: str) -> list[Owned]:
    native, capi = Native(), Capi()
    found: list[Owned] = [(native, c) for c in await objects(client, kinds.CLAIM, namespace=namespace)]
    theirs = await objects(client, *kinds.CAPI_CLAIMS, namespace=namespace)
    return found + [(capi, c) for c in theirs if capi.pool_key(c)]


def _block(address: Object) -> Block | None:
    """None: it cannot be read."""
    try:
        return parse_block(address["spec"].get("address") or "")
    except InvalidText:
        return None


# IPPools and leases


async def pools(client: Client, settings: Settings = DEFAULTS) -> list[PoolRow]:
    taken: dict[str, list[Object]] = defaultdict(list)
    for flavour, address in await _addresses(client, settings.namespace):
        taken[flavour.pool_of_address(address) or ""].append(address)
    found = await objects(client, kinds.POOL, namespace=settings.namespace)
    return [_pool_row(pool, taken[name_of(pool)]) for pool in found]


def _pool_row(pool: Object, addresses: list[Object]) -> PoolRow:
    try:
        space = Space(read_pool(pool).pool)
    except InvalidText as error:
        return PoolRow("metal3", "IPPool", name_of(pool), 0, len(addresses), 0, state_of(pool, str(error)))
    unreadable = 0
    for address in addresses:
        if (block := _block(address)) is None:
            unreadable += 1
        else:
            space.adopt(block, address["metadata"]["name"])
    usage = space.usage()
    odd = f"{unreadable} that cannot be read: berth adopt --check" if unreadable else ""
    return PoolRow(
        "metal3", "IPPool", name_of(pool), usage.total, usage.used, usage.free, state_of(pool, odd)
    )


async def leases(client: Client, settings: Settings = DEFAULTS) -> list[LeaseRow]:
    return [
        LeaseRow(
            "metal3",
            address["spec"].get("address") or "",
            f"{flavour.kind} {address['metadata']['namespace']}/{flavour.claim_of_address(address)}",
            flavour.pool_of_address(address) or "",
        )
        for flavour, address in await _addresses(client, settings.namespace)
    ]


# Adoption


async def findings(client: Client, settings: Settings = DEFAULTS) -> list[Finding]:
    pools = await objects(client, kinds.POOL, namespace=settings.namespace)
    addresses = await _addresses(client, settings.namespace)
    claims = await _claims(client, settings.namespace)
    there = Metal3Objects(
        {name_of(pool) for pool in pools},
        {meta.uid(claim) for _, claim in claims},
        {holder(flavour, *name_of(address).split("/")) for flavour, address in addresses},
    )
    found = [_pool_finding(pool, settings) for pool in pools]
    for flavour, address in addresses:
        found.append(Finding("metal3", _what(address), _address_problem(flavour, address, there)))
    for flavour, claim in claims:
        what = f"{flavour.kind} {name_of(claim)}"
        problem = _left_alone(claim, settings) or _claim_problem(flavour, claim, there)
        found.append(Finding("metal3", what, problem))
    return found


def _left_alone(obj: Object, settings: Settings) -> str:
    wanted = settings.of(Metal3Settings).watch_filter
    if not wanted or meta.labels(obj).get(kinds.WATCH_LABEL) == wanted:
        return ""
    return f"its label {kinds.WATCH_LABEL} is not {wanted}: it is left alone; see --watch-filter"


@dataclass(frozen=True, slots=True)
class Metal3Objects:
    """What is there, and what was seen to be somebody's already."""

    pools: set[str]
    claims: set[str]  # UIDs
    addresses: set[str]  # kind of the claim, namespace and name
    seen: dict[tuple[str, str], str] = field(default_factory=dict)


def _what(address: Object) -> str:
    return f"IPAddress {name_of(address)} ({address['spec'].get('address')})"


def _pool_finding(pool: Object, settings: Settings) -> Finding:
    problem = _left_alone(pool, settings)
    try:
        read_pool(pool)
    except InvalidText as error:
        problem = problem or f"cannot be read: {error}"
    return Finding("metal3", f"IPPool {name_of(pool)}", problem)


def _address_problem(flavour: Flavour, address: Object, there: Metal3Objects) -> str:
    what, pool = _what(address), flavour.pool_of_address(address) or ""
    if pool not in there.pools:
        return f"its IPPool {pool} does not exist; it is left alone"
    block = _block(address)
    if block is None:
        return "its address cannot be read; it is left alone"
    other = there.seen.setdefault((pool, str(block)), what)
    if other != what:
        return f"has the same address as {other}: remove one of them first"
    maker = made_for(flavour, address)
    if maker is not None and maker not in there.claims:
        return f"its {flavour.kind} is gone; it will be given back after a grace"
    key = holder(flavour, address["metadata"]["namespace"], flavour.claim_of_address(address))
    beside = there.seen.setdefault(("", key), what)
    return "" if beside == what else f"is held for the {flavour.kind} that has {beside} too"


def _claim_problem(flavour: Flavour, claim: Object, there: Metal3Objects) -> str:
    pool, bound = flavour.pool_key(claim), flavour.bound_name(claim)
    if bound and holder(flavour, claim["metadata"]["namespace"], bound) not in there.addresses:
        return f"its status names IPAddress {bound}, which does not exist"
    return "" if pool in there.pools else f"its IPPool {pool or '(none)'} does not exist; it waits"


# Explanations


def answer(asked: Question) -> str:
    status = asked.status
    given = (status.get("address") or {}).get("name") or (status.get("addressRef") or {}).get("name")
    if given:
        return f"has {given}"
    if status.get("errorMessage"):
        return f"waits: {status['errorMessage']}"
    for condition in status.get("conditions") or []:
        if condition.get("status") == "False":
            return waits(condition.get("reason"), condition.get("message", ""))
    if kinds.PAUSED in meta.annotations(asked.obj):
        return f"is paused: take the annotation {kinds.PAUSED} away"
    return warned(asked.events) or NO_ANSWER


def named_pool(claim: Object) -> PoolRow | None:
    reference = claim["spec"].get("pool") or claim["spec"].get("poolRef") or {}
    if not reference.get("name"):
        return None
    kind = reference.get("kind") or "IPPool"
    name = f"{reference.get('namespace') or claim['metadata']['namespace']}/{reference['name']}"
    state = "does not exist" if kind == "IPPool" else "is another provider's"
    return PoolRow("metal3", kind, name, 0, 0, 0, state)


def considers(row: PoolRow, claim: Object, settings: Settings) -> bool:
    named = named_pool(claim)
    return named is not None and row.name == named.name


VIEW = View(
    kinds={"ipclaim": (kinds.CLAIM,), "ipaddressclaim": kinds.CAPI_CLAIMS},
    pools=pools,
    leases=leases,
    findings=findings,
    answer=answer,
    considers=considers,
    named_pool=named_pool,
)
