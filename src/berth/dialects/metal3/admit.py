"""Admission of IPPool, IPClaim and IPAddress: defaults, and a list of faults. Pure; every rule is looked at,
not only the first that is broken.

Texts are wire-level: clients match them, misspelling (`bonds`) included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from berth.control.admission import Handler
from berth.control.review import Answer, Fault, Faults, Review, patched
from berth.control.webhooks import Webhook, rule
from berth.dialects.metal3.kinds import GROUP
from berth.dialects.metal3.translate import LONGEST_NAME_PREFIX, NAME_PREFIX, contains, entry_range
from berth.errors import InvalidText
from berth.leasing.model import Strategy
from berth.net import Block, Family, Range, parse_address, parse_block

Object = dict[str, Any]
Rules = Callable[[Object, Object | None], Iterator[Fault]]

NOT_AN_ADDRESS = "is not a valid IP address"
FIXED = "cannot be modified"
LARGEST_RANDOM = 2**63 - 1
ANNOTATED = {
    "name": "asks-for-an-address",
    "expression": "has(object.metadata.annotations) && 'ipAddress' in object.metadata.annotations",
}
REQUIRED = ("namePrefix", "pool", "claim", "address")
EVERYTHING_SAID = 20  # overlapping entries named in warnings at most


def routes() -> Mapping[str, Handler]:
    paths: dict[str, Handler] = {}
    for kind, rules in (("ippool", pool_faults), ("ipclaim", claim_faults), ("ipaddress", address_faults)):
        paths[f"/mutate-ipam-metal3-io-v1alpha1-{kind}"] = _mutate
        paths[f"/validate-ipam-metal3-io-v1alpha1-{kind}"] = _validating(rules)
    return paths


def webhooks() -> tuple[Webhook, ...]:
    """CEL in the CRDs says most rules already, so claims and addresses, the hot path, are asked about only
    where CEL cannot see: if they carry the annotation `ipAddress`. Pools are always asked about.
    """
    return (
        _webhook("default.ippool", "mutate", "ippool", "ippools", mutating=True),
        _webhook("validation.ippool", "validate", "ippool", "ippools"),
        _webhook("validation.ipclaim", "validate", "ipclaim", "ipclaims", conditions=(ANNOTATED,)),
        _webhook("validation.ipaddress", "validate", "ipaddress", "ipaddresses", conditions=(ANNOTATED,)),
    )


def _webhook(
    name: str,
    verb: str,
    kind: str,
    plural: str,
    *,
    mutating: bool = False,
    conditions: tuple[Object, ...] = (),
) -> Webhook:
    return Webhook(
        name=f"{name}.{GROUP}",
        path=f"/{verb}-ipam-metal3-io-v1alpha1-{kind}",
        rules=(rule(GROUP, "v1alpha1", (plural,), ("CREATE", "UPDATE")),),
        mutating=mutating,
        match_conditions=conditions,
    )


async def _mutate(review: Review) -> Answer:
    return patched(review, defaulted(review.object))


def _validating(rules: Rules) -> Handler:
    async def validate(review: Review) -> Answer:
        faults = Faults()
        for fault in rules(review.object, review.old_object or None):
            faults.add(*fault)
        answer = faults.answer(review)
        return answer.warning(*warnings(review.object)) if answer.allowed else answer

    return validate


def defaulted(obj: Object) -> Object:
    """A pool's strategy filled in, and zero values of optional fields left out, as the type's defaults do.

    The object comes as it was sent: what is of the wrong shape is left for the schema to refuse.
    """
    given = obj.get("spec")
    if not isinstance(given, dict):
        return obj
    spec = {key: value for key, value in given.items() if key in REQUIRED or not _is_zero(value)}
    if obj["kind"] == "IPPool":
        spec.setdefault("allocationStrategy", "sequential")
        if isinstance(spec.get("pools"), list):
            spec["pools"] = [_without_zeros(entry) for entry in spec["pools"]]
    return {**obj, "spec": spec}


def _without_zeros(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    return {key: value for key, value in entry.items() if not _is_zero(value)}


def warnings(obj: Object) -> list[str]:
    """Entries that overlap one another: legal, an address belongs to the first, but seldom meant."""
    if obj["kind"] != "IPPool":
        return []
    entries = enumerate((obj.get("spec") or {}).get("pools") or ())
    ranges = [(i, found) for i, entry in entries if (found := _range(entry)) is not None]
    known = sorted(ranges, key=lambda pair: (pair[1].family, pair[1].first))
    said: list[str] = []
    widest: tuple[int, Range] | None = None  # of those before, the one that reaches farthest
    for index, found in known:
        if widest is not None and widest[1].family is found.family and found.first <= widest[1].last:
            one, two = sorted((widest[0], index))
            said.append(
                f"spec.pools[{one}] and spec.pools[{two}] overlap; an address belongs to the earlier entry"
            )
        if widest is None or widest[1].family is not found.family or found.last > widest[1].last:
            widest = (index, found)
    return said[:EVERYTHING_SAID]


# IPPool


def pool_faults(pool: Object, old: Object | None) -> Iterator[Fault]:
    """On update, what was wrong before is not held against it: a pool that upstream accepted, or one whose
    address lies outside by now, can still be labelled, held and let go, and repaired step by step.
    """
    spec = pool.get("spec") or {}
    if old is None:
        yield from _spec_faults(spec, "is out of bonds of the pools given")
        return
    before = old.get("spec") or {}
    if spec == before:
        return
    bounds = "is out of bounds of the pools given"
    yield from _pool_changes(spec, before)
    known = {fault.body for fault in _spec_faults(before, bounds)}
    yield from (fault for fault in _spec_faults(spec, bounds) if fault.body not in known)
    if before.get("pools") != spec.get("pools"):
        yield from _in_use_outside(old, _ranges(before), _ranges(spec))


def _spec_faults(spec: Object, out_of_bounds: str) -> Iterator[Fault]:
    yield from _pool_fields(spec)
    ranges = _ranges(spec)
    for text in (spec.get("preAllocations") or {}).values():
        if not _in_bounds(text, ranges):
            yield Fault("spec.preAllocations", text, out_of_bounds)


def _pool_changes(spec: Object, before: Object) -> Iterator[Fault]:
    if spec.get("namePrefix") != before.get("namePrefix"):
        yield Fault("spec.namePrefix", spec.get("namePrefix"), FIXED)
    strategy, was = (s.get("allocationStrategy") or "sequential" for s in (spec, before))
    if strategy != was:
        yield Fault("spec.allocationStrategy", strategy, "cannot be modified after creation")


def _pool_fields(spec: Object) -> Iterator[Fault]:
    yield from _name_prefix(spec.get("namePrefix", ""))
    yield from _addresses("spec", spec)
    yield from _prefix_of("spec.prefix", spec.get("prefix"), _families(spec))
    yield from _reservations(spec.get("preAllocations") or {})
    random = spec.get("allocationStrategy") == Strategy.RANDOM
    for index, entry in enumerate(spec.get("pools") or ()):
        yield from _entry(f"spec.pools[{index}]", entry, random=random)


def _name_prefix(text: str) -> Iterator[Fault]:
    if not NAME_PREFIX.fullmatch(text):
        rule = "must consist of lower case letters, digits, dashes and dots, and start with a letter or digit"
        yield Fault("spec.namePrefix", text, f"{rule}: it begins the names of IPAddress objects")
    elif len(text) > LONGEST_NAME_PREFIX:
        yield Fault("spec.namePrefix", text, f"must be at most {LONGEST_NAME_PREFIX} characters")


def _addresses(path: str, fields: Object) -> Iterator[Fault]:
    gateway = fields.get("gateway") or ""
    if gateway and not _is_address(gateway):
        yield Fault(f"{path}.gateway", gateway, NOT_AN_ADDRESS)
    for index, server in enumerate(fields.get("dnsServers") or ()):
        if server and not _is_address(server):
            yield Fault(f"{path}.dnsServers[{index}]", server, NOT_AN_ADDRESS)


def _reservations(reservations: Mapping[str, str]) -> Iterator[Fault]:
    seen: dict[Block, str] = {}
    for name, text in reservations.items():
        if not _is_address(text):
            yield Fault(f"spec.preAllocations.{name}", text, NOT_AN_ADDRESS)
            continue
        other = seen.setdefault(parse_block(text), name)
        if other != name:
            said = f'IP address is already pre-allocated to claim "{other}"'
            yield Fault(f"spec.preAllocations.{name}", text, said)


def _entry(path: str, entry: Object, *, random: bool) -> Iterator[Fault]:
    start, end, subnet = (entry.get(key) or "" for key in ("start", "end", "subnet"))
    if not (start or end or subnet):
        yield Fault(path, entry, "pool entry must specify at least one of start, end, or subnet")
        return
    wrong = _bounds_fault(start, end, subnet)
    if wrong is not None:
        yield Fault(path, entry, wrong)
    yield from _addresses(path, entry)
    yield from _prefix_of(f"{path}.prefix", entry.get("prefix"), _entry_families(entry))
    if wrong is None and random and (why := _unsized(entry, start, end, subnet)):
        yield Fault(path, entry, f'cannot be used with allocationStrategy "random": {why}')


def _bounds_fault(start: str, end: str, subnet: str) -> str | None:
    for label, text in (("Start IP", start), ("End IP", end)):
        if text and not _is_address(text):
            return f'invalid {label} "{text}"'
    if subnet and (why := _subnet_fault(subnet)):
        return f'invalid Subnet "{subnet}": {why}'
    if end and not (start or subnet):
        return "end alone gives no range: set start or subnet too"
    if start and end:
        first, last = parse_address(start), parse_address(end)
        if first.family is not last.family:
            return f"start IP {start} and end IP {end} are of different families"
        if last.value < first.value:
            return f"end IP {end} is before start IP {start}"
    return None


def _subnet_fault(subnet: str) -> str | None:
    if "/" not in subnet:
        return f"invalid CIDR address: {subnet}"
    try:
        parse_block(subnet)
    except InvalidText as error:
        return str(error)
    return None


def _unsized(entry: Object, start: str, end: str, subnet: str) -> str | None:
    """Why a random address cannot be drawn from the entry; None if it can."""
    if start and not end and not subnet:
        return "pool with Start requires End or Subnet to determine size"
    found = entry_range(entry)
    if found is None:
        last = parse_block(subnet).range.last if subnet else 0
        return f"end IP {end or _text(parse_block(subnet).family, last)} is before start IP {start or subnet}"
    return "pool size exceeds int range" if found.size > LARGEST_RANDOM else None


def _prefix_of(path: str, prefix: Any, families: set[Family]) -> Iterator[Fault]:
    if not isinstance(prefix, int) or prefix == 0:
        return
    widest = min((family.width for family in families), default=128)
    if not 0 <= prefix <= widest:
        family = "an IPv4" if widest == 32 else "an IPv6"
        yield Fault(path, prefix, f"is not a prefix length of {family} address: 0 to {widest}")


def _in_use_outside(old: Object, before: list[Range], ranges: list[Range]) -> Iterator[Fault]:
    """Addresses given out that this edit would leave outside; not those that were outside before."""
    for text in ((old.get("status") or {}).get("indexes") or {}).values():
        if not _in_bounds(text, ranges) and _in_bounds(text, before):
            yield Fault("spec.pools", text, "is in use but out of bounds of the pools given")


def _families(spec: Object) -> set[Family]:
    """Of the entries that take the pool's own prefix."""
    entries = [entry for entry in spec.get("pools") or () if not entry.get("prefix")]
    return {family for entry in entries for family in _entry_families(entry)}


def _entry_families(entry: Object) -> set[Family]:
    texts = [entry.get("start") or "", (entry.get("subnet") or "").partition("/")[0]]
    return {parse_address(text).family for text in texts if text and _is_address(text)}


def _ranges(spec: Object) -> list[Range]:
    return [found for entry in spec.get("pools") or () if (found := _range(entry)) is not None]


def _range(entry: Object) -> Range | None:
    try:
        return entry_range(entry)
    except InvalidText:
        return None  # said where the entry itself is looked at


def _in_bounds(text: str, ranges: list[Range]) -> bool:
    if not _is_address(text):
        return False
    block = parse_block(text)
    return any(contains(one, block) for one in ranges)


# IPClaim and IPAddress


def claim_faults(claim: Object, old: Object | None) -> Iterator[Fault]:
    spec = claim.get("spec") or {}
    if old is None and not (spec.get("pool") or {}).get("name"):
        yield Fault("spec.pool.name", "", "cannot be empty")
    if old is None or _annotation(claim) != _annotation(old):
        yield from _wanted(claim)
    if old is not None:
        yield from _same_reference("pool", spec, old.get("spec") or {})


def address_faults(address: Object, old: Object | None) -> Iterator[Fault]:
    spec = address.get("spec") or {}
    if old is not None:
        before = old.get("spec") or {}
        if spec.get("address") != before.get("address"):
            yield Fault("spec.address", spec.get("address"), FIXED)
        yield from _same_reference("pool", spec, before)
        yield from _same_reference("claim", spec, before)
        return
    for field in ("pool", "claim"):
        if not (spec.get(field) or {}).get("name"):
            yield Fault(f"spec.{field}.name", "", "cannot be empty")
    text = spec.get("address") or ""
    if not _is_address(text):
        yield Fault("spec.address", text, NOT_AN_ADDRESS if text else "cannot be empty")
    yield from _wanted(address)


def _wanted(obj: Object) -> Iterator[Fault]:
    text = _annotation(obj)
    if text and not _is_address(text):
        yield Fault("metadata.annotations.ipAddress", text, NOT_AN_ADDRESS)


def _annotation(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get("ipAddress") or "")


def _same_reference(field: str, spec: Object, before: Object) -> Iterator[Fault]:
    new, old = (s.get(field) or {} for s in (spec, before))
    if any((new.get(key) or "") != (old.get(key) or "") for key in ("name", "namespace", "kind")):
        yield Fault(f"spec.{field}", new, FIXED)


def _is_address(text: str) -> bool:
    try:
        parse_address(text)
    except InvalidText:
        return False
    return True


def _is_zero(value: Any) -> bool:
    return value is None or value == 0 or value in ("", [], {})


def _text(family: Family, value: int) -> str:
    return Block(family, value, family.width).address
