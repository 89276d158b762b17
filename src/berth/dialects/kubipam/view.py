"""IPAMRanges and what was granted from them.

With --namespace the operator still lists the requests of all namespaces, and so do these: a range may be held
from another one.
"""

from __future__ import annotations

from collections import defaultdict

from berth.dialects.kubipam import kinds
from berth.dialects.kubipam.translate import asked_range, block_of, range_of, read_range
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
from berth.kube.client import Client
from berth.leasing.space import Space
from berth.net import Block
from berth.settings import Settings


async def _granted(client: Client) -> list[tuple[Object, Block]]:
    requests = await objects(client, kinds.REQUEST)
    return [(request, block) for request in requests if (block := block_of(request)) is not None]


async def pools(client: Client, settings: Settings = DEFAULTS) -> list[PoolRow]:
    taken: dict[str, list[tuple[Object, Block]]] = defaultdict(list)
    for request, block in await _granted(client):
        taken[range_of(request)].append((request, block))
    ranges = await objects(client, kinds.RANGE, namespace=settings.namespace)
    return [_pool_row(found, taken[name_of(found)]) for found in ranges]


def _pool_row(found: Object, granted: list[tuple[Object, Block]]) -> PoolRow:
    try:
        space = Space(read_range(found).pool)
    except InvalidText as error:
        return PoolRow(
            "kubipam", "IPAMRange", name_of(found), 0, len(granted), 0, state_of(found, str(error))
        )
    for request, block in granted:
        space.adopt(block, name_of(request))
    usage = space.usage()
    return PoolRow(
        "kubipam", "IPAMRange", name_of(found), usage.total, usage.used, usage.free, state_of(found)
    )


async def leases(client: Client, settings: Settings = DEFAULTS) -> list[LeaseRow]:
    return [
        LeaseRow("kubipam", str(block), f"IPAMRequest {name_of(request)}", range_of(request))
        for request, block in await _granted(client)
        if _is_in(settings, request)
    ]


def _is_in(settings: Settings, obj: Object) -> bool:
    return settings.namespace in ("", obj["metadata"]["namespace"])


async def findings(client: Client, settings: Settings = DEFAULTS) -> list[Finding]:
    ranges = {name_of(found): found for found in await objects(client, kinds.RANGE)}
    spaces: dict[str, Space] = {}
    found: list[Finding] = []
    for name, obj in ranges.items():
        problem = ""
        try:
            spaces[name] = Space(read_range(obj).pool)
        except InvalidText as error:
            problem = str(error)
        if _is_in(settings, obj):
            found.append(Finding("kubipam", f"IPAMRange {name}", problem))
    for request in await objects(client, kinds.REQUEST):
        cidr = (request.get("status") or {}).get("cidr")
        what = f"IPAMRequest {name_of(request)}" + (f" ({cidr})" if cidr else "")
        problem = _problem(request, cidr, spaces)
        if _is_in(settings, request):
            found.append(Finding("kubipam", what, problem))
    return found


def _problem(request: Object, cidr: str | None, spaces: dict[str, Space]) -> str:
    space, block = spaces.get(range_of(request)), block_of(request)
    if cidr and block is None:
        return "its CIDR cannot be read; correct or remove status.cidr"
    if space is None:
        keeps = "it keeps its CIDR" if cidr else "it waits"
        return f"its range {range_of(request)} is missing or invalid; {keeps}"
    if block is None:
        return ""
    other = space.holder_of(block)
    if other is not None:
        return f"overlaps what {other} holds: delete one of them"
    space.adopt(block, name_of(request))
    return ""


def answer(asked: Question) -> str:
    status = asked.status
    if status.get("state") == kinds.READY and status.get("cidr"):
        return f"has {status['cidr']}"
    if status.get("state"):
        return waits(status["state"], status.get("message", ""))
    return warned(asked.events) or NO_ANSWER


def named_range(request: Object) -> PoolRow | None:
    if not ((request.get("spec") or {}).get("ipam") or {}).get("name"):
        return None
    return PoolRow("kubipam", "IPAMRange", asked_range(request), 0, 0, 0, "does not exist")


def considers(row: PoolRow, request: Object, settings: Settings) -> bool:
    return row.name == asked_range(request)


VIEW = View(
    kinds={"ipamrequest": (kinds.REQUEST,)},
    short={"ipreq": "ipamrequest"},
    pools=pools,
    leases=leases,
    findings=findings,
    answer=answer,
    considers=considers,
    named_pool=named_range,
)
