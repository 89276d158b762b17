"""Admission of IPPool, IPClaim and IPAddress: defaults, and a list of faults. Pure; every rule is looked at,
not only the first that is broken. A review costs n log n in what it brings, and a long one is read aside.

Texts are wire-level: clients match them, misspelling (`bonds`) included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from berth.control.admission import Handler
from berth.control.review import Answer, Fault, Faults, Review, patched
from berth.control.webhooks import Webhook, rule
from berth.dialects.metal3.kinds import GROUP
from berth.dialects.metal3.pool_texts import EntryText, PoolTexts
from berth.dialects.metal3.translate import LONGEST_NAME_PREFIX, NAME_PREFIX
from berth.leasing.model import Strategy
from berth.net import Block, Family, Range, RangeSet, parse_block
from berth.net.parse import is_address

Object = dict[str, Any]
Rules = Callable[[Object, Object | None], Iterator[Fault]]

NOT_AN_ADDRESS = "is not a valid IP address"
FIXED = "cannot be modified"
LARGEST_RANDOM = 2**63 - 1
ANNOTATED = {
    "name": "asks-for-an-address",
    "expression": "has(object.metadata.annotations) && 'ipAddress' in object.metadata.annotations",
}
FURTHER = {"prefix", "gateway", "dnsServers"}  # what an entry may have beside its bounds
REQUIRED = ("namePrefix", "pool", "claim", "address")
EVERYTHING_SAID = 20  # overlapping entries named in warnings at most
EVERY_FAULT = 100  # told at most; whoever corrects those is told of the next
AT_ONCE = 500  # texts that are looked at on the event loop; a longer pool is read in a thread


def routes() -> Mapping[str, Handler]:
    paths: dict[str, Handler] = {}
    validate = {
        "ippool": _validate_pool,
        "ipclaim": _validating(claim_faults),
        "ipaddress": _validating(address_faults),
    }
    for kind, handler in validate.items():
        paths[f"/mutate-ipam-metal3-io-v1alpha1-{kind}"] = _mutate
        paths[f"/validate-ipam-metal3-io-v1alpha1-{kind}"] = handler
    return paths


def webhooks() -> tuple[Webhook, ...]:
    """CEL in the CRDs says most rules already, so claims and addresses, the hot path, are asked about only
    where CEL cannot see: if they carry the annotation `ipAddress`. IPPools are always asked about.
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
    if review.kind.kind == "IPPool" and _is_long(review):
        return await asyncio.to_thread(_defaults, review)
    return _defaults(review)


def _defaults(review: Review) -> Answer:
    return patched(review, defaulted(review.object))


def _validating(rules: Rules) -> Handler:
    async def validate(review: Review) -> Answer:
        return _answer(review, rules(review.object, review.old_object or None))

    return validate


async def _validate_pool(review: Review) -> Answer:
    if _is_long(review):
        return await asyncio.to_thread(_review_pool, review)
    return _review_pool(review)


def _review_pool(review: Review) -> Answer:
    read = PoolTexts(review.object.get("spec") or {})
    answer = _answer(review, _pool_faults(read, review.old_object or None))
    return answer.warning(*_overlaps(read)) if answer.allowed else answer


def _answer(review: Review, found: Iterator[Fault]) -> Answer:
    faults = Faults()
    for fault in islice(found, EVERY_FAULT):
        faults.add(*fault)
    return faults.answer(review)


def _is_long(review: Review) -> bool:
    """So long that reading it here would hold up everybody else. By length alone, whatever is in it: the
    schema has not looked at it yet."""
    lists: list[Any] = [(review.old_object.get("status") or {}).get("indexes")]
    for spec in (obj.get("spec") or {} for obj in (review.object, review.old_object)):
        lists += [spec.get(field) for field in ("pools", "preAllocations", "dnsServers")]
        entries = spec.get("pools")
        if isinstance(entries, list):
            lists += [entry.get("dnsServers") for entry in entries if isinstance(entry, dict)]
    return sum(len(one) for one in lists if isinstance(one, list | dict)) > AT_ONCE


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
    """The entry itself where it has none: most have none, and there may be 16,384."""
    if not isinstance(entry, dict) or not any(map(_is_zero, entry.values())):
        return entry
    return {key: value for key, value in entry.items() if not _is_zero(value)}


def warnings(obj: Object) -> list[str]:
    """Entries that overlap one another: legal, an address belongs to the first, but seldom meant."""
    return _overlaps(PoolTexts(obj.get("spec") or {})) if obj["kind"] == "IPPool" else []


def _overlaps(read: PoolTexts) -> list[str]:
    if sum(entry.range.size for entry in read.entries if entry.range is not None) == read.area.count:
        return []
    known = [(i, entry.range) for i, entry in enumerate(read.entries) if entry.range is not None]
    known.sort(key=lambda pair: (pair[1].family, pair[1].first))
    said: list[str] = []
    widest: tuple[int, Range] | None = None  # of those before, the one that reaches farthest
    for index, found in known:
        if len(said) == EVERYTHING_SAID:
            break
        if widest is not None and widest[1].family is found.family and found.first <= widest[1].last:
            one, two = sorted((widest[0], index))
            said.append(
                f"spec.pools[{one}] and spec.pools[{two}] overlap; an address belongs to the earlier entry"
            )
        if widest is None or widest[1].family is not found.family or found.last > widest[1].last:
            widest = (index, found)
    return said


# IPPool


def pool_faults(pool: Object, old: Object | None) -> Iterator[Fault]:
    return _pool_faults(PoolTexts(pool.get("spec") or {}), old)


def _pool_faults(read: PoolTexts, old: Object | None) -> Iterator[Fault]:
    """On update, what was wrong before is not held against it: a pool that upstream accepted, or one whose
    address lies outside by now, can still be labelled, held and let go, and repaired step by step.
    """
    if old is None:
        yield from _pool_fields(read)
        yield from _reserved_outside(read, "is out of bonds of the pools given")
        return
    before = PoolTexts(old.get("spec") or {}, read)
    if read.spec == before.spec:
        return
    yield from _pool_changes(read.spec, before.spec)
    known: set[tuple[str, str]] | None = None
    for fault in _pool_fields(read, before):
        if known is None:
            known = {_same(one) for one in _pool_fields(before)}
        if _same(fault) not in known:
            yield fault
    yield from _reserved_outside(read, "is out of bounds of the pools given", before)
    if before.spec.get("pools") != read.spec.get("pools"):
        yield from _in_use_outside(old, before, read)


def _same(fault: Fault) -> tuple[str, str]:
    """Wherever in the object it is: an entry may have moved."""
    return fault.text, fault.value if isinstance(fault.value, str) else fault.body


def _reserved_outside(read: PoolTexts, told: str, before: PoolTexts | None = None) -> Iterator[Fault]:
    """Not those that were outside before, for whichever claim."""
    area = read.area
    missing = [(text, block) for _, text, block in read.reservations if not _within(area, block)]
    old = set() if before is None or not missing else set(before.reserved.values())
    lost = RangeSet() if before is None or not missing else before.lost_in(read)
    for text, block in missing:
        if before is None or text not in old or _within(lost, block):
            yield Fault("spec.preAllocations", text, told)


def _within(area: RangeSet, block: Block | None) -> bool:
    return block is not None and area.holds(block.family, block.first)


def _pool_changes(spec: Object, before: Object) -> Iterator[Fault]:
    if spec.get("namePrefix") != before.get("namePrefix"):
        yield Fault("spec.namePrefix", spec.get("namePrefix"), FIXED)
    strategy, was = (s.get("allocationStrategy") or "sequential" for s in (spec, before))
    if strategy != was:
        yield Fault("spec.allocationStrategy", strategy, "cannot be modified after creation")


def _pool_fields(read: PoolTexts, before: PoolTexts | None = None) -> Iterator[Fault]:
    spec = read.spec
    yield from _name_prefix(spec.get("namePrefix", ""))
    yield from _addresses("spec", spec, read)
    if spec.get("prefix"):
        # Of the entries that take the pool's own prefix.
        inheriting = (entry for entry in read.entries if not entry.given.get("prefix"))
        families = {family for entry in inheriting for family in entry.families}
        yield from _prefix_of("spec.prefix", spec["prefix"], families)
    yield from _reservations(read, before)
    random = spec.get("allocationStrategy") == Strategy.RANDOM
    for index, entry in enumerate(read.entries):
        if random or entry.range is None or not FURTHER.isdisjoint(entry.given):
            yield from _entry(f"spec.pools[{index}]", entry, read, random=random)


def _name_prefix(text: str) -> Iterator[Fault]:
    if len(text) > LONGEST_NAME_PREFIX:
        yield Fault("spec.namePrefix", text, f"must be at most {LONGEST_NAME_PREFIX} characters")
    elif not NAME_PREFIX.fullmatch(text):
        rule = "must consist of lower case letters, digits, dashes and dots, and start with a letter or digit"
        yield Fault("spec.namePrefix", text, f"{rule}: it begins the names of IPAddress objects")


def _addresses(path: str, fields: Object, read: PoolTexts) -> Iterator[Fault]:
    gateway = fields.get("gateway") or ""
    if gateway and read.hosts[gateway] is None:
        yield Fault(f"{path}.gateway", gateway, NOT_AN_ADDRESS)
    for index, server in enumerate(fields.get("dnsServers") or ()):
        if server and read.hosts[server] is None:
            yield Fault(f"{path}.dnsServers[{index}]", server, NOT_AN_ADDRESS)


def _reservations(read: PoolTexts, before: PoolTexts | None) -> Iterator[Fault]:
    """Of those that were as wrong before, and may be very many, none is told."""
    if None not in read.first_claims and len(read.first_claims) == len(read.reservations):
        return
    for name, text, block in read.reservations:
        other = None if block is None else read.first_claims[block]
        if other == name:
            continue
        if before is not None and before.is_as_wrong(name, text, block, other):
            continue
        told = NOT_AN_ADDRESS if other is None else f'IP address is already pre-allocated to claim "{other}"'
        yield Fault(f"spec.preAllocations.{name}", text, told)


def _entry(path: str, entry: EntryText, read: PoolTexts, *, random: bool) -> Iterator[Fault]:
    given = entry.given
    if not (given.get("start") or given.get("end") or given.get("subnet")):
        yield Fault(path, given, "pool entry must specify at least one of start, end, or subnet")
        return
    if entry.fault is not None:
        yield Fault(path, given, entry.fault)
    if given.get("gateway") or given.get("dnsServers"):
        yield from _addresses(path, given, read)
    if given.get("prefix"):
        yield from _prefix_of(f"{path}.prefix", given["prefix"], entry.families)
    if entry.fault is None and random and (why := _unsized(entry)):
        yield Fault(path, given, f'cannot be used with allocationStrategy "random": {why}')


def _unsized(entry: EntryText) -> str | None:
    """Why a random address cannot be drawn from the entry; None if it can."""
    start, end, subnet = (entry.given.get(key) or "" for key in ("start", "end", "subnet"))
    if start and not end and not subnet:
        return "pool with Start requires End or Subnet to determine size"
    if entry.range is None:
        last = parse_block(subnet).range.last if subnet else 0
        return f"end IP {end or _text(parse_block(subnet).family, last)} is before start IP {start or subnet}"
    return "pool size exceeds int range" if entry.range.size > LARGEST_RANDOM else None


def _prefix_of(path: str, prefix: Any, families: set[Family]) -> Iterator[Fault]:
    if not isinstance(prefix, int) or prefix == 0:
        return
    widest = min((family.width for family in families), default=128)
    if not 0 <= prefix <= widest:
        family = "an IPv4" if widest == 32 else "an IPv6"
        yield Fault(path, prefix, f"is not a prefix length of {family} address: 0 to {widest}")


def _in_use_outside(old: Object, before: PoolTexts, read: PoolTexts) -> Iterator[Fault]:
    """Addresses given out that this edit would leave outside; not those that were outside before."""
    area, lost = read.area, before.lost_in(read)
    for text in ((old.get("status") or {}).get("indexes") or {}).values():
        block = read.hosts[text]
        if _within(lost, block) and not _within(area, block):
            yield Fault("spec.pools", text, "is in use but out of bounds of the pools given")


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
    if not is_address(text):
        yield Fault("spec.address", text, NOT_AN_ADDRESS if text else "cannot be empty")
    yield from _wanted(address)


def _wanted(obj: Object) -> Iterator[Fault]:
    text = _annotation(obj)
    if text and not is_address(text):
        yield Fault("metadata.annotations.ipAddress", text, NOT_AN_ADDRESS)


def _annotation(obj: Object) -> str:
    return str((obj["metadata"].get("annotations") or {}).get("ipAddress") or "")


def _same_reference(field: str, spec: Object, before: Object) -> Iterator[Fault]:
    new, old = (s.get(field) or {} for s in (spec, before))
    if any((new.get(key) or "") != (old.get(key) or "") for key in ("name", "namespace", "kind")):
        yield Fault(f"spec.{field}", new, FIXED)


def _is_zero(value: Any) -> bool:
    return value is None or value == 0 or value in ("", [], {})


def _text(family: Family, value: int) -> str:
    return Block(family, value, family.width).address
