"""A pool's spec as it is written, each text of it read once: what admission looks at, and says of it.

There may be 16,384 entries and 32,768 reservations, and an update brings them twice. Texts are read when they
are first asked for, and what an edit leaves as it was is read once for before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

from berth.dialects.metal3.translate import bounded
from berth.errors import InvalidText
from berth.net import Block, Family, Range, RangeSet, parse_block
from berth.net.parse import is_address, parse_host

Object = dict[str, Any]
Run = tuple[str | None, Range | None]  # what is wrong with an entry's bounds; what lies between them


class EntryText(NamedTuple):
    """An entry of `spec.pools`, what is wrong with its bounds, and what lies between them."""

    given: Object
    fault: str | None
    range: Range | None

    @property
    def families(self) -> set[Family]:
        """Of an entry that can be read, one; what cannot be read may be of both, or of none."""
        if self.range is not None:
            return {self.range.family}
        texts = [self.given.get("start") or "", (self.given.get("subnet") or "").partition("/")[0]]
        return {parse_host(text).family for text in texts if text and is_address(text)}


class Hosts(dict[str, Block | None]):
    """Texts and the addresses they are, or None, each read when it is first asked for."""

    def __missing__(self, text: str) -> Block | None:
        try:
            found = parse_host(text)
        except InvalidText:
            found = None
        self[text] = found
        return found


class Runs(dict[tuple[Any, Any, Any], Run]):
    """Bounds of entries (start, end, subnet) and what lies between them, read in the same way."""

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self._hosts = hosts

    def __missing__(self, bounds: tuple[Any, Any, Any]) -> Run:
        found = self[bounds] = self._read(*bounds)
        return found

    def _read(self, start: Any, end: Any, subnet: Any) -> Run:
        first, last = self._hosts[start] if start else None, self._hosts[end] if end else None
        if start and first is None:
            return f'invalid Start IP "{start}"', None
        if end and last is None:
            return f'invalid End IP "{end}"', None
        try:
            block = _subnet(subnet) if subnet else None
        except InvalidText as error:
            return f'invalid Subnet "{subnet}": {error}', None
        if end and not (start or subnet):
            return "end alone gives no range: set start or subnet too", None
        if first is not None and last is not None:
            if first.family is not last.family:
                return f"start IP {start} and end IP {end} are of different families", None
            if last.first < first.first:
                return f"end IP {end} is before start IP {start}", None
        try:
            return None, bounded(first, last, block)
        except InvalidText as error:
            return str(error), None


class PoolTexts:
    """A pool's spec, each text of it read once and when it is asked for: there may be 16,384 entries and
    32,768 reservations. What an edit leaves as it was is read once for the pool before and after it."""

    def __init__(self, spec: Object, other: PoolTexts | None = None) -> None:
        self.spec = spec
        self.hosts: Hosts = Hosts() if other is None else other.hosts
        self._runs: Runs = Runs(self.hosts) if other is None else other._runs

    @cached_property
    def entries(self) -> list[EntryText]:
        return [EntryText(given, *run) for given, run in zip(self._given, self._between, strict=True)]

    @property
    def _given(self) -> list[Object]:
        return self.spec.get("pools") or []

    @cached_property
    def _between(self) -> list[Run]:
        runs = self._runs
        return [runs[one.get("start"), one.get("end"), one.get("subnet")] for one in self._given]

    @property
    def reserved(self) -> Mapping[str, str]:
        return self.spec.get("preAllocations") or {}

    @cached_property
    def reservations(self) -> list[tuple[str, str, Block | None]]:
        hosts = self.hosts
        return [(name, text, hosts[text]) for name, text in self.reserved.items()]

    @cached_property
    def first_claims(self) -> dict[Block | None, str]:
        """Of the claims that an address is reserved for, the first."""
        return {block: name for name, _, block in reversed(self.reservations)}

    def lost_in(self, edited: PoolTexts) -> RangeSet:
        """What lay in entries that the edited pool has not: few of very many. Both share their runs."""
        there = set(map(id, edited._between))
        return RangeSet(run[1] for run in self._between if id(run) not in there and run[1] is not None)

    def is_as_wrong(self, name: str, text: str, block: Block | None, other: str | None) -> bool:
        """Whether this reservation is no address here either, or has the same one before it."""
        return self.reserved.get(name) == text and (block is None or self.first_claims[block] == other)

    @cached_property
    def area(self) -> RangeSet:
        """What the entries have together, sorted once for all that is looked for in it."""
        return RangeSet(found for _, found in self._between if found is not None)


def _subnet(text: str) -> tuple[Block, Block]:
    address, slash, _ = text.partition("/")
    if not slash:
        raise InvalidText(f"invalid CIDR address: {text}")
    return parse_block(text), parse_host(address)
