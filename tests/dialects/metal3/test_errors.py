"""Contract 6.6: what is wrong is written on the claim, and is over when its cause is."""

from __future__ import annotations

import pytest
from tests.support.metal3 import SOON, A, World, address, claim, pool
from tests.support.operator import eventually

from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

EXHAUSTED = "Exhausted IP Pools"
EVENTS = Resource("", "v1", "Event", "events")


async def full(world: World) -> World:
    """A pool with no address left, and `x` that waits."""
    await world.create(pool("pool", A))
    await world.ask_text("c1", "c2", "c3")
    assert await world.refused("x") == EXHAUSTED
    return world


async def test_an_exhausted_pool_is_told_on_the_claim(world: World) -> None:
    """M-095: message, no address, held by our finalizer; and a Warning Event with the same reason."""
    await full(world)
    stored = await world.get(kinds.CLAIM, "x")
    ready = meta.condition(stored, "Ready") or {}
    assert stored["status"] == {"errorMessage": EXHAUSTED, "conditions": [ready]}
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "PoolExhausted", EXHAUSTED)
    assert meta.finalizers(stored) == [kinds.CLAIM_FINALIZER]

    async def told() -> bool:
        events = await world.list(EVENTS)
        return any(
            (event["involvedObject"]["name"], event["type"], event["reason"], event["message"])
            == ("x", "Warning", "PoolExhausted", EXHAUSTED)
            for event in events
        )

    await eventually(told)


async def told_of(world: World, name: str) -> tuple[str, str, str]:
    """Type, reason and message of the last Event about a claim."""

    async def found() -> list[tuple[str, str, str]]:
        events = [event for event in await world.list(EVENTS) if event["involvedObject"]["name"] == name]
        return [(event["type"], event["reason"], event["message"]) for event in events]

    return (await eventually(found))[-1]


async def test_a_claim_that_is_served_at_once_is_told_of_too(world: World) -> None:
    """One Event a grant, with the address and the pool; and the word of the Event is the condition's."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    expected = f"10.0.0.10 allocated from {world.namespace}/pool"
    assert await told_of(world, "c1") == ("Normal", "AddressAllocated", expected)
    ready = meta.condition(await world.get(kinds.CLAIM, "c1"), "Ready") or {}
    assert (ready["status"], ready["reason"], ready["message"]) == ("True", "AddressAllocated", "10.0.0.10")
    assert ready["observedGeneration"] == 1


@pytest.mark.parametrize(
    ("wants", "reason"), [("10.0.0.10", "PinTaken"), ("10.9.9.9", "PinOutside"), ("10.0.0.12", "PinTaken")]
)
async def test_the_word_of_the_event_is_the_conditions(world: World, wants: str, reason: str) -> None:
    """Also where upstream's message is the same for two causes."""
    await world.create(pool("pool", {**A, "preAllocations": {"other": "10.0.0.12"}}))
    await world.ask("c1")
    await world.refused("x", wants=wants)
    assert (await told_of(world, "x"))[:2] == ("Warning", reason)
    ready = meta.condition(await world.get(kinds.CLAIM, "x"), "Ready") or {}
    assert (ready["status"], ready["reason"]) == ("False", reason)


async def test_an_event_says_what_upstreams_words_leave_out(world: World) -> None:
    """The status keeps upstream's text; whose the address is, or that it is in no range, is in the Event."""
    await world.create(pool("pool", A))
    await world.ask("c1")
    await world.refused("taken", wants="10.0.0.10")
    await world.refused("outside", wants="10.9.9.9")
    holder = f"IPClaim/{world.namespace}/c1"
    expected = {
        "PinTaken": f"Requested IP not available: 10.0.0.10/32 is taken by {holder}",
        "PinOutside": f"{EXHAUSTED}: 10.9.9.9/32 is in no pool that serves this claim",
    }

    async def told() -> bool:
        said = {event["reason"]: event["message"] for event in await world.list(EVENTS)}
        assert {reason: said.get(reason) for reason in expected} == expected
        return True

    await eventually(told)


async def test_a_release_serves_whoever_waits(world: World) -> None:
    """M-096: within a second, untouched, and the message goes."""
    await full(world)
    await world.delete(kinds.CLAIM, "c2")
    assert (await world.address_of("x", SOON))["spec"]["address"] == "10.0.0.11"
    stored = await world.get(kinds.CLAIM, "x")
    assert set(stored["status"]) == {"address", "conditions"}
    assert meta.is_true(stored, "Ready")


async def test_growing_the_pool_serves_whoever_waits(world: World) -> None:
    """M-097: within a second."""
    await full(world)
    await world.edit(kinds.POOL, "pool", {"spec": {"pools": [{"start": "10.0.0.10", "end": "10.0.0.20"}]}})
    assert (await world.address_of("x", SOON))["spec"]["address"] == "10.0.0.13"


async def test_a_failed_claim_may_be_made_again(world: World) -> None:
    """M-098."""
    await full(world)
    await world.remove(kinds.CLAIM, "x")
    await world.remove(kinds.CLAIM, "c1")
    assert await world.ask_text("x") == ["10.0.0.10"]


async def test_emptying_the_message_by_hand_still_works(world: World) -> None:
    """M-099: it was the only way upstream; the claim is served, or told again why not."""
    await full(world)
    await world.edit(kinds.CLAIM, "x", {"status": {"errorMessage": None}}, "status")
    assert await world.error_of("x") == EXHAUSTED
    await world.delete(kinds.CLAIM, "c1")
    await world.edit(kinds.CLAIM, "x", {"status": {"errorMessage": None}}, "status")
    assert (await world.address_of("x", SOON))["spec"]["address"] == "10.0.0.10"


async def test_a_failed_claim_holds_nobody_up(world: World) -> None:
    """M-100."""
    await world.create(pool("pool", A))
    await world.ask("c1", wants="10.0.0.10")
    await world.refused("never", wants="10.0.0.10")
    assert await world.ask_text("c2", "c3") == ["10.0.0.11", "10.0.0.12"]
    assert await world.error_of("never") == "Requested IP not available"


async def test_a_paused_claim_at_the_head_of_the_line_holds_nobody_up(world: World) -> None:
    """The oldest is woken first; if it may not be served, the next one is."""
    await full(world)
    assert await world.refused("y") == EXHAUSTED
    await world.annotate(kinds.CLAIM, "x", kinds.PAUSED, "")
    await world.delete(kinds.CLAIM, "c1")
    assert (await world.address_of("y", SOON))["spec"]["address"] == "10.0.0.10"


async def test_a_claim_annotated_while_it_waits_holds_nobody_up(world: World) -> None:
    """M-100: from then on it waits for that one address, and whatever else comes free is for the next."""
    await full(world)
    assert await world.refused("y") == EXHAUSTED
    await world.annotate(kinds.CLAIM, "x", kinds.WANTED_ADDRESS, "10.0.0.10")

    async def insists() -> bool:
        return await world.error_of("x") == "Requested IP not available"

    await eventually(insists)
    await world.delete(kinds.CLAIM, "c3")
    assert (await world.address_of("y", SOON))["spec"]["address"] == "10.0.0.12"
    await world.delete(kinds.CLAIM, "c1")
    assert (await world.address_of("x", SOON))["spec"]["address"] == "10.0.0.10"


async def test_a_failed_claim_can_be_deleted(world: World) -> None:
    """M-101."""
    await full(world)
    await world.remove(kinds.CLAIM, "x")


async def test_a_claim_goes_around_an_object_that_has_the_name(world: World) -> None:
    """M-102: it names another pool, so it is no lease of ours; when it goes, its address is free."""
    stranger = address("a-10-0-0-10", "10.0.0.10", "c1", "other")
    await world.create(stranger, pool("pool", A))
    assert await world.ask_text("c1", "c2") == ["10.0.0.11", "10.0.0.12"]
    assert await world.refused("c3") == EXHAUSTED
    await world.remove(kinds.ADDRESS, "a-10-0-0-10")
    assert (await world.address_of("c3", SOON))["spec"]["address"] == "10.0.0.10"


async def test_one_object_may_be_in_the_way_of_two_pools(world: World) -> None:
    """M-102 with two pools of one namePrefix: when it goes, its address is free in both."""
    await world.create(address("a-10-0-0-10", "10.0.0.10", "stranger", "other"))
    await world.create(pool("pool", A), pool("second", A))
    assert await world.ask_text("c1") == ["10.0.0.11"]
    assert await world.ask_text("d1", pool="second") == ["10.0.0.12"]
    assert await world.refused("c2") == EXHAUSTED
    await world.remove(kinds.ADDRESS, "a-10-0-0-10")
    assert (await world.address_of("c2", SOON))["spec"]["address"] == "10.0.0.10"


async def test_waiting_claims_are_served_oldest_first(world: World) -> None:
    """X-15: those who wait together keep their order."""
    await full(world)
    for name in ("y", "z"):
        await world.create(claim(name))
        await world.error_of(name)
    await world.delete(kinds.CLAIM, "c3")
    assert (await world.address_of("x", SOON))["spec"]["address"] == "10.0.0.12"
    assert await world.error_of("y") == EXHAUSTED
