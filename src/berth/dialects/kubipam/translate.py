"""IPAMRange and IPAMRequest objects ↔ our values. Pure. Texts are wire-level: clients match them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from berth.dialects.kubipam.kinds import ALLOCATED, BUSY, CIDR, FIRST_MATCH, INVALID, READY, ROUND_ROBIN
from berth.errors import InvalidText
from berth.kube import meta
from berth.leasing.model import Pool, Strategy
from berth.net import Block, Family, Range, RangeSet, parse_block, parse_range
from berth.net.parse import MAPPED, EndsBeforeStart, FamiliesDiffer, TouchesMapped

Object = dict[str, Any]
STRATEGIES = {"": Strategy.BEST_FIT, FIRST_MATCH: Strategy.BEST_FIT, ROUND_ROBIN: Strategy.ROUND_ROBIN}


@dataclass(frozen=True, slots=True)
class RangeSpec:
    """An IPAMRange's spec, read once."""

    pool: Pool
    family: Family = Family.V4  # what an empty list counts as
    chunk: int = 0  # length of a grant whose request names none; 0: one address

    @property
    def width(self) -> int:
        return self.family.width

    @property
    def goes_round(self) -> bool:
        return self.pool.strategy is Strategy.ROUND_ROBIN


@dataclass(frozen=True, slots=True)
class BlockWish:
    """What a request asks of its range."""

    length: int
    pin: Block | None = None

    def busy_message(self, ranges: Iterable[Range]) -> str:
        if self.pin is None:
            return f"allocation with size {self.length} failed"
        message = f"{self.pin} already busy"
        # A block that can never be had says so behind the text which clients know.
        known = any(True for _ in RangeSet(ranges).within(self.pin))
        return message if known else f"{message}: it lies outside of the range"


# Ranges


def read_range(obj: Object) -> RangeSpec:
    """Raises InvalidText with the message for the status."""
    spec = obj.get("spec") or {}
    ranges = tuple(_entry(text) for text in spec.get("ranges") or ())
    families = {item.family for item in ranges}
    if len(families) > 1:
        raise InvalidText("invalid ip ranges: IPv4 and IPv6 entries in one range")
    mode = spec.get("mode") or ""
    if mode not in STRATEGIES:
        raise InvalidText(f'invalid mode "{mode}": use {FIRST_MATCH} or {ROUND_ROBIN}')
    family = families.pop() if families else Family.V4
    chunk = max(0, spec.get("chunkSize") or 0)
    if chunk > family.width:
        raise InvalidText(f"chunk size {chunk} too large: network {family.width}")
    return RangeSpec(Pool(name_of(obj), ranges, strategy=STRATEGIES[mode]), family, chunk)


def _entry(text: str) -> Range:
    fault = f'invalid ip range "{text}"'
    try:
        return parse_range(text)
    except FamiliesDiffer as error:
        raise InvalidText(f"{fault}: start and end ip have different version") from error
    except EndsBeforeStart as error:
        raise InvalidText(f"{fault}: end of range before start") from error
    except TouchesMapped as error:
        raise InvalidText(f"{fault}: {MAPPED}") from error
    except InvalidText as error:
        raise InvalidText(fault) from error


# Requests


def read_wish(request: Object, spec: RangeSpec) -> BlockWish:
    """Raises InvalidText with the message for the status."""
    asked = request.get("spec") or {}
    size = asked.get("size") or 0
    if size < 0:
        raise InvalidText(f"invalid size {size}")
    if size > spec.width:
        raise InvalidText(f"size {size} too large: network {spec.width}")
    length = size or spec.chunk or spec.width
    text = asked.get("request") or ""
    return BlockWish(length, _pin(text)) if text else BlockWish(length)


def _pin(text: str) -> Block:
    try:
        return parse_block(text.strip())
    except InvalidText as error:
        why = f"invalid CIDR address: {text.strip()}"
        raise InvalidText(f"invalid request cidr or ip {text}: {why}") from error


def block_of(request: Object) -> Block | None:
    """What was granted to it; None: nothing, or nothing that can be read."""
    text = (request.get("status") or {}).get("cidr") or ""
    try:
        return parse_block(text) if text else None
    except InvalidText:
        return None


def asked_range(request: Object) -> str:
    """Namespace and name of the range the spec names; the name may be empty."""
    reference = (request.get("spec") or {}).get("ipam") or {}
    return f"{reference.get('namespace') or request['metadata']['namespace']}/{reference.get('name') or ''}"


def range_of(request: Object) -> str:
    """Where its block was taken; for one that has none yet, where it asks."""
    status = request.get("status") or {}
    return (status.get("range") if status.get("cidr") else None) or asked_range(request)


def referred(request: Object) -> set[str]:
    """Every range that must stay while the request is there."""
    return {range_of(request), asked_range(request)}


def name_of(obj: Object) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


# Status of a request


def granted(request: Object, block: Block, now: datetime) -> Object:
    kept = {key: value for key, value in (request.get("status") or {}).items() if key != "message"}
    conditions = _ready(request, ALLOCATED, "", now)
    grant = {"cidr": str(block), "state": READY, "range": range_of(request)}
    return {**kept, **grant, "conditions": conditions}


def refused(request: Object, message: str, reason: str, now: datetime, *, busy: bool) -> Object:
    state = {"state": BUSY if busy else INVALID, "message": message}
    return {**(request.get("status") or {}), **state, "conditions": _ready(request, reason, message, now)}


def _ready(request: Object, reason: str, message: str, now: datetime) -> list[Object]:
    """The one condition; its reason is the word which Events, metrics and logs say too."""
    ready = {
        "type": "Ready",
        "status": "True" if reason == ALLOCATED else "False",
        "reason": reason,
        "message": message,
        "observedGeneration": request["metadata"].get("generation", 1),
    }
    known = (request.get("status") or {}).get("conditions") or []
    return meta.with_condition(known, ready, now)


def is_settled(request: Object, finalizer: str) -> bool:
    """It has what it asked for, and every word is written."""
    status = request.get("status") or {}
    settled = bool(status.get("cidr")) and status.get("state") == READY and not status.get("message")
    return settled and meta.has_finalizer(request, finalizer) and _is_marked(request)


def _is_marked(request: Object) -> bool:
    """Would a backup of it, which has no status, say what it has?"""
    block = block_of(request)
    return block is None or meta.annotations(request).get(CIDR) == str(block)
