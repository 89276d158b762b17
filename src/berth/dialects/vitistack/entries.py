"""What a pool lists, ours and others', and how one address more or less is written. Pure.

    spec.addresses   83.118.168.0/32, 83.118.168.1/32, …, 83.118.168.32-83.118.169.200
                     one by one, as the documents show them   those beyond the first 32, merged

The API server copies and validates the whole list at every write: with an entry for each of some hundred
Services that would be the dearest part of admitting one more. Which ranges are ours to grow and to split, an
annotation says; those of the administrator are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.service_annotations import host
from berth.errors import InvalidText
from berth.kube import meta
from berth.net import Address, Range, RangeSet, parse_range

ONE_BY_ONE = 32
MOST_BYTES = 64 * 1024  # of the annotation; the API server allows four times that for all of them together


@dataclass(frozen=True, slots=True)
class Entries:
    listed: tuple[str, ...] = ()  # one by one, and whatever others put there
    merged: RangeSet = field(default_factory=RangeSet)

    @classmethod
    def of(cls, pool: Mapping[str, Any]) -> Entries:
        """A range that somebody edited is no longer ours."""
        all_ = texts(pool)
        ours = frozenset(meta.annotations(pool).get(kinds.MERGED, "").split(",")) & frozenset(all_)
        listed = tuple(text for text in all_ if text not in ours)
        return cls(listed, RangeSet(found for text in ours if (found := _range(text))))

    @property
    def texts(self) -> list[str]:
        return [*self.listed, *map(_text, self.merged)]

    @property
    def annotation(self) -> str | None:
        """None: there is to be none."""
        return ",".join(map(_text, self.merged)) or None

    def plus(self, addresses: Iterable[Address]) -> Entries:
        covered = Coverage(self.texts)
        new = sorted((one for one in addresses if one not in covered), key=_order)
        room = len(new) if self._is_full else max(0, ONE_BY_ONE - len(self.listed))
        listed = (*self.listed, *map(host, new[:room]))
        return Entries(listed, self.merged.union(map(_alone, new[room:])))

    def minus(self, addresses: Iterable[Address]) -> Entries:
        gone = set(addresses)
        hosts = {host(one) for one in gone}
        listed = tuple(text for text in self.listed if text not in hosts and not _is_any(text, gone))
        return Entries(listed, self.merged.minus(RangeSet(map(_alone, gone))))

    def least(self) -> Entries:
        """One of them: MetalLB refuses an empty pool."""
        if self.listed or not self.merged:
            return Entries(self.listed[:1])
        first = next(iter(self.merged))
        return Entries((), RangeSet([Range(first.family, first.first, first.first)]))

    @property
    def _is_full(self) -> bool:
        """So scattered that merging gains nothing, and the annotation would outgrow its limit."""
        return len(self.annotation or "") > MOST_BYTES


class Coverage:
    """What a pool's entries cover. Each Service asks."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._texts = frozenset(entries)
        wide = (text for text in self._texts if not _is_ipv4_host(text))
        self._ranges = RangeSet(found for text in wide if (found := _range(text)))

    def __contains__(self, address: Address) -> bool:
        return host(address) in self._texts or self._ranges.contains(_alone(address))


def texts(pool: Mapping[str, Any]) -> list[str]:
    return list((pool.get("spec") or {}).get("addresses") or [])


def lost(old: Mapping[str, Any], new: Mapping[str, Any] | None) -> RangeSet:
    """What a pool covers no longer."""
    now = texts(new) if new is not None else []
    gone = [found for text in set(texts(old)).difference(now) if (found := _range(text))]
    return (
        RangeSet(gone).minus(RangeSet(found for text in now if (found := _range(text))))
        if gone
        else RangeSet()
    )


def _is_ipv4_host(entry: str) -> bool:
    """It has one spelling, so its text tells everything: only others are worth parsing."""
    return entry[-3:] == "/32" and ":" not in entry


def _alone(address: Address) -> Range:
    return Range(address.family, address.value, address.value)


def _text(item: Range) -> str:
    return host(Address(item.family, item.first)) if item.first == item.last else str(item)


def _order(address: Address) -> tuple[int, int]:
    return int(address.family), address.value


@lru_cache(maxsize=16384)
def _range(entry: str) -> Range | None:
    try:
        return parse_range(entry.replace(" ", ""))
    except InvalidText:
        return None


def _is_any(entry: str, addresses: set[Address]) -> bool:
    """An entry for one of them, however it is written; a wider range is the administrator's."""
    if _is_ipv4_host(entry):
        return False
    found = _range(entry)
    if found is None or found.first != found.last:
        return False
    return Address(found.family, found.first) in addresses
