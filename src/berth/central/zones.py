"""Zones: named networks from a file, checked as a whole before any of it counts.

zones:
  - name: inet
    ipv4: [83.118.168.0/22]
    ipv6: ["2a05:1234::/64"]
    exclude: [83.118.168.1-83.118.168.9]
    skip_network_and_broadcast: false
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from berth.central.documents import parse_document, read_document, short
from berth.errors import InvalidText, UserError
from berth.leasing.model import Pool
from berth.net import Family, Range, parse_range
from berth.store.requests import pool_key

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
KEYS = {"name", "ipv4", "ipv6", "exclude", "skip_network_and_broadcast"}

EXAMPLE = """\
zones:
  - name: hnet-private
    ipv4: [10.0.0.0/8, 172.16.0.0/12]
  - name: hnet-public
    ipv4: [83.118.128.0/22, 91.186.80.0/20]
  - name: inet
    ipv4: [83.118.168.0/22]
    ipv6: ["2a05:1234::/64"]
"""


@dataclass(frozen=True, slots=True)
class Zones:
    """The configured zones, in the file's order."""

    names: tuple[str, ...]
    pools: Mapping[str, Pool]  # by zone/family; a family without prefixes has none


def load_zones(path: Path | None) -> Zones:
    """The zones of a file; without one, the example's three."""
    if path is None:
        return parse_zones(EXAMPLE, "the example zones")
    try:
        text = read_document(path)
    except UserError as cause:
        raise UserError(f"The zones file {path} {cause}.") from cause
    return parse_zones(text, f"the zones file {path}")


def parse_zones(text: str, where: str) -> Zones:
    try:
        document = parse_document(text)
    except UserError as cause:
        raise UserError(f"{where} {cause}.") from cause
    try:
        return _zones(document)
    except UserError as cause:
        raise UserError(f"{where}: {cause}") from cause


def _zones(document: Any) -> Zones:
    listed = document.get("zones") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not listed:
        raise UserError("it needs a list `zones` with at least one zone.")
    pools: dict[str, Pool] = {}
    names: list[str] = []
    for item in listed:
        name = _name(item, names)
        names.append(name)
        pools.update(_pools(name, item))
    _refuse_overlaps(pools)
    return Zones(tuple(names), pools)


def _name(item: Any, before: list[str]) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    if not isinstance(name, str) or not NAME.fullmatch(name):
        entry, said = len(before) + 1, short(name)
        raise UserError(f"entry {entry}: a zone's name must be letters, digits, dots and dashes, not {said}.")
    if name in before:
        raise UserError(f"zone {name} is listed twice.")
    unknown = sorted(map(str, item.keys() - KEYS))
    if unknown:
        raise UserError(f"zone {name} has an unknown key {short(unknown[0])}.")
    return name


def _pools(name: str, item: Mapping[str, Any]) -> dict[str, Pool]:
    excluded = [_parsed(name, text) for text in _texts(name, item, "exclude")]
    skip = item.get("skip_network_and_broadcast", False)
    if not isinstance(skip, bool):
        raise UserError(f"zone {name}: skip_network_and_broadcast must be true or false.")
    pools = {}
    for family, key in ((Family.V4, "ipv4"), (Family.V6, "ipv6")):
        texts = _texts(name, item, key)
        ranges = [_range(name, text, family) for text in texts]
        edges = _edges(texts, ranges) if skip and family is Family.V4 else []
        if ranges:
            exclusions = [range_ for range_ in excluded if range_.family == family]
            pool = pool_key(name, family)
            pools[pool] = Pool(pool, tuple(ranges), tuple(exclusions + edges))
    if not pools:
        raise UserError(f"zone {name} has neither ipv4 nor ipv6 prefixes.")
    return pools


def _texts(name: str, item: Mapping[str, Any], key: str) -> list[str]:
    value = item.get(key) or []
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise UserError(f"zone {name}: {key} must be a list of prefixes or ranges.")
    return value


def _parsed(name: str, text: str) -> Range:
    try:
        return parse_range(text)
    except InvalidText as cause:
        said = cause if len(text) <= 64 else f"{short(text)} is no prefix or range"
        raise UserError(f"zone {name}: {said}.") from cause


def _range(name: str, text: str, family: Family) -> Range:
    parsed = _parsed(name, text)
    if parsed.family != family:
        raise UserError(f"zone {name}: {text} is not of family ipv{int(family)}.")
    return parsed


def _edges(texts: Iterable[str], ranges: Iterable[Range]) -> list[Range]:
    """Network and broadcast address of each prefix that has them."""
    found = []
    for text, range_ in zip(texts, ranges, strict=True):
        if "/" in text and range_.last - range_.first > 1:
            found += [Range(range_.family, edge, edge) for edge in (range_.first, range_.last)]
    return found


def _refuse_overlaps(pools: Mapping[str, Pool]) -> None:
    """One address is in one zone: an overlap would make two zones give out the same."""
    every = sorted(
        (range_.family, range_.first, range_.last, key)
        for key, pool in pools.items()
        for range_ in pool.ranges
    )
    for one, other in pairwise(every):
        if one[0] == other[0] and other[1] <= one[2]:
            raise UserError(f"prefixes of {one[3]} and {other[3]} overlap.")
