"""What outlives a status: which block a request had, and whose the taken parts of a range were. Pure.

A backup of objects brings them back without status and with other UIDs, in any order. So a request carries
its block in an annotation, and a range says in another, by namespace, what is taken of it. The range's memory
keeps strangers away until everybody is back; and it is by namespace because nobody can write a request into
another's: an annotation that somebody made up gets nothing that is not free, or was his own namespace's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from berth.dialects.kubipam.kinds import CIDR, TAKEN
from berth.dialects.kubipam.translate import BlockWish
from berth.errors import InvalidText
from berth.kube import meta
from berth.net import Block, Range, RangeSet, parse_block, parse_range

Object = dict[str, Any]
ANYBODY = ""  # instead of a namespace: of whoever remembers it
# An object's annotations may have 256 KiB together.
LARGEST = 200_000


def remembered(request: Object) -> Block | None:
    """The block it had, or is about to get; None: nothing, or nothing that can be read."""
    try:
        return parse_block(meta.annotations(request)[CIDR])
    except (KeyError, InvalidText):
        return None


def is_asked_for(block: Block, wish: BlockWish) -> bool:
    """Would the request still be content with it?"""
    return block == wish.pin if wish.pin is not None else block.length == wish.length


@dataclass(frozen=True, slots=True)
class Memory:
    """What is taken of a range, by the namespace of who has it."""

    taken: Mapping[str, RangeSet] = field(default_factory=dict)

    def all(self) -> RangeSet:
        return RangeSet(item for ranges in self.taken.values() for item in ranges)

    def is_for(self, namespace: str, block: Block) -> bool:
        found = (self.taken.get(namespace), self.taken.get(ANYBODY))
        return any(ranges is not None and ranges.contains(block) for ranges in found)

    def rendered(self) -> str:
        """Of a range in very many pieces only what is taken, and in the end only about where."""
        text = _json(self.taken)
        if len(text) > LARGEST:
            everything = self.all()
            text = _json({ANYBODY: everything})
            pieces = sum(1 for _ in everything)
            while len(text) > LARGEST:
                pieces //= 2
                text = _json({ANYBODY: _in_pieces(everything, pieces)})
        return text


def read_memory(obj: Object) -> Memory:
    """What cannot be read is left out."""
    try:
        found = json.loads(meta.annotations(obj).get(TAKEN) or "{}")
    except ValueError:
        return Memory()
    if not isinstance(found, dict):
        return Memory()
    taken = {str(namespace): RangeSet(_readable(str(texts))) for namespace, texts in found.items()}
    return Memory({namespace: ranges for namespace, ranges in taken.items() if ranges})


def remember(before: Memory, page_taken: RangeSet, held: Iterable[tuple[str, Block]]) -> Memory:
    """The memory of a page: what is known to be held, by namespace; of the rest what was known before."""
    blocks: dict[str, list[Range]] = defaultdict(list)
    for namespace, block in held:
        blocks[namespace].append(block.range)
    unknown = page_taken.minus(RangeSet(item for ranges in blocks.values() for item in ranges))
    for namespace, ranges in before.taken.items() if unknown else ():
        blocks[namespace] += [part for item in ranges for part in unknown.within(item)]
    blocks[ANYBODY] += unknown.minus(before.all())
    return Memory({namespace: RangeSet(ranges) for namespace, ranges in sorted(blocks.items()) if ranges})


def _readable(texts: str) -> Iterable[Range]:
    for text in texts.split(","):
        try:
            yield parse_range(text)
        except InvalidText:
            continue


def _json(taken: Mapping[str, RangeSet]) -> str:
    texts = {namespace: ",".join(map(str, ranges)) for namespace, ranges in taken.items()}
    return json.dumps(texts, separators=(",", ":"))


def _in_pieces(ranges: RangeSet, most: int) -> RangeSet:
    """At most so many pieces, joined over the smallest gaps: a little more is remembered than is taken."""
    items = list(ranges)
    gaps = [
        (two.first - one.last if one.family is two.family else two.family.top, index)
        for index, (one, two) in enumerate(pairwise(items))
    ]
    bridged = {index for _, index in sorted(gaps)[: max(0, len(items) - max(1, most))]}
    return ranges.union(
        Range(items[index].family, items[index].last, items[index + 1].first)
        for index in bridged
        if items[index].family is items[index + 1].family
    )
