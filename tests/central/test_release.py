"""V-165 to V-179: release, retention, recall and sweep over HTTP, on both stores; and pending
reservations.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.support.central import OTHER_SECRET, Reply, World, request_body

from berth.leasing.holders import DAY_MS

A = "83.118.168.10/32"
NO_MATCH = (
    "Could not deregister service: no matching address found with the provided secret, zone and address"
)
NOT_ON_IT = "Could not deregister service: service does not exist for this address"


async def test_v165_a_released_address_is_free_after_the_sweep(world: World) -> None:
    """V-165"""
    await world.post(address=A)
    reply = await world.delete(address=A)
    assert reply == Reply(200, {"message": "Service expiration set successfully", "address": A})
    assert await world.stored() == ["83.118.168.10"]
    await world.sweep()
    assert await world.stored() == []


async def test_v166_v167_retention_keeps_the_address_for_its_days(world: World) -> None:
    """V-166, V-167"""
    await world.post(address=A)
    await world.delete(address=A, retention=5)
    world.advance(days=4, seconds=23 * 3600)
    await world.sweep()
    assert await world.stored() == ["83.118.168.10"]
    assert (await world.post("y", address=A, secret=OTHER_SECRET)).status == 404
    world.advance(seconds=3601)
    await world.sweep()
    assert await world.stored() == []


async def test_v168_a_wrong_secret_releases_nothing(world: World) -> None:
    """V-168"""
    await world.post(address=A)
    reply = await world.delete(address=A, secret=OTHER_SECRET)
    assert (reply.status, reply.message) == (404, NO_MATCH)
    assert (await world.entries(A))["ingress_inet"].active


async def test_v169_who_is_not_on_the_address_cannot_leave_it(world: World) -> None:
    """V-169"""
    await world.post(address=A)
    reply = await world.delete("y", address=A)
    assert (reply.status, reply.message) == (404, NOT_ON_IT)


async def test_v170_the_other_holder_stays(world: World) -> None:
    """V-170"""
    await world.post("x", address=A)
    await world.post("y", address=A)
    await world.delete("x", address=A)
    await world.sweep()
    assert list(await world.entries(A)) == ["y"]


async def test_v171_the_holder_recalls_its_address_without_naming_it(world: World) -> None:
    """V-171"""
    await world.post(address=A)
    await world.delete(address=A, retention=5)
    assert (await world.post()).address == A
    assert (await world.entries(A))["ingress_inet"].active


async def test_v172_another_holder_takes_over_a_retained_address(world: World) -> None:
    """V-172"""
    await world.post("x", address=A)
    await world.delete("x", address=A, retention=5)
    assert (await world.post("y", address=A)).status == 200
    world.advance(days=5, seconds=1)
    await world.sweep()
    assert list(await world.entries(A)) == ["y"]


async def test_v173_recall_before_the_sweep_keeps_the_address(world: World) -> None:
    """V-173"""
    await world.post(address=A)
    await world.delete(address=A)
    assert (await world.post()).address == A
    await world.sweep()
    assert await world.stored() == ["83.118.168.10"]


async def test_v174_sweep_and_recall_at_once_never_answer_an_address_without_a_record(world: World) -> None:
    """V-174: a thousand recalls under a sweep that never rests."""
    done = asyncio.Event()

    async def leave_and_come_back(name: str) -> None:
        address = (await world.post(name)).address
        for _ in range(100):
            await world.delete(name, address=address)
            address = (await world.post(name)).address
            assert (await world.entries(address))[name].active, "I3: answered, and no record"

    async def sweep() -> int:
        freed = 0
        while not done.is_set():
            freed += (await world.sweeper.sweep()).addresses
        return freed

    sweeping = asyncio.create_task(sweep())
    try:
        await asyncio.gather(*(leave_and_come_back(f"s{number}") for number in range(10)))
    finally:
        done.set()
    assert await sweeping > 0, "the sweep never came between"
    assert len(await world.stored()) == 10


async def test_v175_a_second_delete_never_pushes_the_end_back(world: World) -> None:
    """V-175"""
    await world.post(address=A)
    await world.delete(address=A, retention=5)
    first = (await world.entries(A))["ingress_inet"].expires_at
    await world.delete(address=A, retention=9)
    assert (await world.entries(A))["ingress_inet"].expires_at == first
    await world.delete(address=A, retention=1)
    sooner = (await world.entries(A))["ingress_inet"].expires_at
    assert first is not None
    assert sooner is not None
    assert sooner == pytest.approx(first - 4 * DAY_MS, abs=60_000)


async def test_v176_an_active_entry_wins_over_a_retained_one(world: World) -> None:
    """V-176"""
    await world.post(address=A)
    await world.delete(address=A, retention=5)
    await world.post(address="83.118.168.20")
    assert (await world.post()).address == "83.118.168.20/32"


async def test_of_two_retained_ones_the_longer_kept_is_recalled(world: World) -> None:
    for address, days in ((A, 3), ("83.118.168.20", 9), ("83.118.168.30", 5)):
        await world.post(address=address)
        await world.delete(address=address, retention=days)
    assert (await world.post()).address == "83.118.168.20/32"


async def test_v177_a_delete_names_its_address(world: World) -> None:
    """V-177"""
    await world.post()
    reply = await world.delete()
    assert (reply.status, reply.message) == (404, NO_MATCH)


@pytest.mark.parametrize("path", ["/", "/service", "/v2/service"])
async def test_v179_older_paths_work_too(world: World, path: str) -> None:
    """V-179"""
    await world.post(address=A)
    assert (await world.send("DELETE", path, request_body(address=A))).status == 200


async def test_a_release_by_an_earlier_incarnation_changes_nothing(world: World) -> None:
    await world.post(address=A, uid="new")
    assert (await world.delete(address=A, uid="old")).status == 404
    assert (await world.entries(A))["ingress_inet"].active
    assert (await world.delete(address=A, uid="new")).status == 200


async def test_a_delete_is_validated_like_a_post(world: World) -> None:
    assert (await world.delete(zone="mars", address=A)).message.startswith("invalid zone")
    assert (await world.delete(address="foo")).message == "invalid ip prefix: foo"
    assert (await world.delete(address=A, retention=31)).status == 400


async def test_a_pending_reservation_returns_by_itself(world: World) -> None:
    await world.post(address=A, pending=True)
    await world.sweep()
    assert (await world.entries(A))["ingress_inet"].pending
    world.advance(seconds=121)
    await world.sweep()
    assert await world.stored() == []


async def test_a_confirmed_reservation_stays(world: World) -> None:
    first = await world.post(pending=True)
    assert first.message == "Address registered successfully"
    assert (await world.post()).address == first.address
    world.advance(days=1)
    await world.sweep()
    assert (await world.entries(first.address))["ingress_inet"].active


async def test_a_pending_request_never_touches_an_active_entry_nor_shortens_retention(world: World) -> None:
    await world.post(address=A, retention=3)
    assert (await world.post(address=A, retention=9, pending=True)).status == 200
    entry = (await world.entries(A))["ingress_inet"]
    assert (entry.active, entry.retention_days) == (True, 3)
    await world.delete(address=A, retention=5)
    before = (await world.entries(A))["ingress_inet"].expires_at
    await world.post(address=A, pending=True)
    assert (await world.entries(A))["ingress_inet"].expires_at == before
