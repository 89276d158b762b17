"""A pod that reaches the webhook port sends reviews of IPPools, as large as one may be, made to be slow."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.support.metal3 import pool

from berth.control.review import GroupKind, Review, User
from berth.dialects.metal3 import admit, crds
from berth.dialects.metal3.translate import read_pool

Object = dict[str, Any]
VALIDATE = "/validate-ipam-metal3-io-v1alpha1-ippool"
MUTATE = "/mutate-ipam-metal3-io-v1alpha1-ippool"
# Twice as much is about twice the work; pair by pair it was four times.
AT_MOST = 2.5


def address(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def spread(size: int) -> Object:
    """Ranges apart from each other, and twice as many reservations, each in the last one looked at."""
    entries = [{"start": address(4 * i), "end": address(4 * i + 2)} for i in range(size)]
    return {"pools": entries, "preAllocations": {f"c{i}": address(2 * i) for i in range(2 * size)}}


def outside(size: int) -> Object:
    """Every reservation is in no range, which no early hit tells."""
    entries = [{"start": f"11.{i >> 8}.{i & 255}.1", "end": f"11.{i >> 8}.{i & 255}.2"} for i in range(size)]
    return {"pools": entries, "preAllocations": {f"c{i}": address(i) for i in range(2 * size)}}


def overlapping(size: int) -> Object:
    """Every range overlaps every other."""
    entries = [{"start": address(i), "end": address(4 * size - i)} for i in range(size)]
    return {"pools": entries, "preAllocations": {f"c{i}": address(i) for i in range(2 * size)}}


def equal(size: int) -> Object:
    """One address for everybody."""
    entries = [{"subnet": "10.0.0.0/24", "gateway": "10.0.0.1"}] * size
    return {"pools": entries, "preAllocations": {f"c{i}": "10.0.0.9" for i in range(2 * size)}}


SHAPES = [spread, outside, overlapping, equal]


def asked(spec: Object, before: Object | None = None) -> Review:
    old = {} if before is None else pool("pool", {"namePrefix": "a", **before})
    if old:
        old["status"] = {"indexes": before["preAllocations"] if before else {}}
    return Review(
        "u",
        "UPDATE" if old else "CREATE",
        GroupKind("ipam.metal3.io", "IPPool"),
        "ippools",
        "default",
        "pool",
        User("somebody"),
        pool("pool", {"namePrefix": "a", **spec}),
        old,
    )


def calls(work: Callable[[], object]) -> int:
    """Functions called, Python's and C's: the same on a machine that is busy."""
    counted = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def grows(work: Callable[[int], Callable[[], object]]) -> float:
    return calls(work(1000)) / calls(work(500))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_review_of_reservations_times_ranges_does_not_cost_their_product(
    shape: Callable[[int], Object],
) -> None:
    """3,500 of each held the whole operator for 3.4 s, and the schema lets 16,384 x 32,768 through."""

    def created(size: int) -> Callable[[], object]:
        review = asked(shape(size))
        return lambda: admit._review_pool(review)

    def edited(size: int) -> Callable[[], object]:
        spec = shape(size)
        review = asked({**spec, "pools": spec["pools"][:-1]}, spec)
        return lambda: admit._review_pool(review)

    assert grows(created) < AT_MOST
    assert grows(edited) < AT_MOST


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pool_that_was_let_through_does_not_cost_the_product_when_it_is_opened(
    shape: Callable[[int], Object],
) -> None:
    """The controller reads it too, and again with every edit."""

    def read(size: int) -> Callable[[], object]:
        obj = pool("pool", {"namePrefix": "a", **shape(size)})
        return lambda: read_pool(obj)

    assert grows(read) < AT_MOST


@pytest.mark.parametrize("path", [VALIDATE, MUTATE])
@pytest.mark.parametrize("shape", SHAPES)
async def test_the_largest_pool_is_not_read_on_the_event_loop(
    path: str, shape: Callable[[int], Object]
) -> None:
    """Controllers, the lease and all other webhooks go on while it is looked at."""
    review = asked(shape(crds.MOST_ENTRIES))
    assert len(review.object["spec"]["preAllocations"]) == crds.MOST_RESERVATIONS
    answering = asyncio.ensure_future(admit.routes()[path](review))
    turns = 0
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 2  # two, if the loop does it itself
    assert (await answering).allowed == (path == MUTATE or shape in (spread, overlapping))


def test_a_pool_with_every_fault_there_is_gets_an_answer_one_can_read() -> None:
    """Each of 49,152 faults would be told twice: megabytes for the API server to carry."""
    entries = [{"start": "nonsense"}] * crds.MOST_ENTRIES
    reserved = {f"c{i}": "nonsense" for i in range(crds.MOST_RESERVATIONS)}
    answer = admit._review_pool(asked({"pools": entries, "preAllocations": reserved}))
    assert len(answer.causes) == admit.EVERY_FAULT
    assert len(answer.message) < 20_000


def test_a_name_prefix_of_megabytes_costs_nothing() -> None:
    """The schema stops it at the API server, not at the port."""
    review = asked({"namePrefix": "a-" * 1_000_000, "pools": [], "preAllocations": {}})
    assert "at most" in admit._review_pool(review).message
