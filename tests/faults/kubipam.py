"""kubipam under faults: requests for single addresses on one range; a name with k asks for a block of two."""

from __future__ import annotations

from itertools import pairwise

from tests.faults.trade import Object, Shown, Snapshot

from berth.dialects.kubipam.kinds import RANGE, REQUEST
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.net import Range, RangeSet, parse_block, parse_range

NAME = "range"


class Kubipam:
    dialect = "kubipam"
    shares_cluster = False
    page: Resource | None = RANGE
    resources: tuple[Resource, ...] = (REQUEST, RANGE)

    async def open(self, client: Client, namespace: str, size: int) -> None:
        body = {"apiVersion": RANGE.api_version, "kind": "IPAMRange", "metadata": {"name": NAME}}
        await client.create(RANGE, {**body, "spec": {"ranges": [_range(size)]}}, namespace)

    async def resize(self, client: Client, namespace: str, size: int) -> None:
        await client.patch(RANGE, NAME, {"spec": {"ranges": [_range(size)]}}, namespace)

    async def close(self, client: Client, namespace: str) -> None:
        """Everything is in the namespace."""

    def claim(self, name: str) -> tuple[Resource, Object]:
        spec = {"ipam": {"name": NAME}, "size": 31 if name.startswith("k") else 32}
        return REQUEST, {
            "apiVersion": REQUEST.api_version,
            "kind": "IPAMRequest",
            "metadata": {},
            "spec": spec,
        }

    def shown(self, seen: Snapshot) -> list[Shown]:
        return [_shown(request) for request in seen[REQUEST.key]]

    def broken(self, seen: Snapshot) -> list[str]:
        """I1: no two blocks overlap. I3: what a request shows is on the page."""
        shown = [one for one in self.shown(seen) if one.answer and not one.going]
        taken = _taken(seen)
        lost = [
            f"I3: {one.name} shows {one.answer}, which is not on the page"
            for one in shown
            if taken is not None and not taken.contains(parse_block(one.answer))
        ]
        return [*_overlaps(shown), *lost]

    def litter(self, seen: Snapshot) -> list[str]:
        """I2: what is on the page is what living requests show."""
        blocks = (parse_block(one.answer).range for one in self.shown(seen) if one.answer)
        extra = (_taken(seen) or RangeSet()).minus(RangeSet(blocks))
        return [f"I2: {item} is taken and nobody's" for item in extra]

    def used(self, seen: Snapshot) -> int | None:
        taken = _taken(seen)
        return None if taken is None else taken.count


def _range(size: int) -> str:
    return f"10.0.0.0-10.0.{(size - 1) // 256}.{(size - 1) % 256}"


def _taken(seen: Snapshot) -> RangeSet | None:
    ranges = [one for one in seen[RANGE.key] if one["metadata"]["name"] == NAME]
    texts = (ranges[0].get("status") or {}).get("taken") if ranges else None
    return None if texts is None else RangeSet(parse_range(text) for text in texts)


def _overlaps(shown: list[Shown]) -> list[str]:
    blocks = [(parse_block(one.answer).range, one.name) for one in shown]
    blocks.sort(key=lambda pair: pair[0].first)
    return [
        f"I1: {one} of {name} and {other} of {second}"
        for (one, name), (other, second) in pairwise(blocks)
        if _touch(one, other)
    ]


def _touch(one: Range, other: Range) -> bool:
    return one.family is other.family and other.first <= one.last


def _shown(request: Object) -> Shown:
    status = request.get("status") or {}
    going = meta.is_deleting(request)
    return Shown(
        request["metadata"]["name"],
        meta.uid(request),
        status.get("cidr", ""),
        going,
        status.get("message", ""),
    )
