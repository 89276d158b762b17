"""The operators' reports: differences are told, what was lost comes back, a copy releases nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from tests.central.faults.telling import A, B, report, two_operators
from tests.support.central import (
    CLUSTER,
    NAMESPACE,
    OTHER_SECRET,
    Options,
    Reply,
    Seconds,
    World,
    request_body,
)

from berth.central import inventory
from berth.central.client import Access, AddressCall, ApiClient, Inventory
from berth.central.settings import ApiLimits
from berth.errors import ApiRefused, StoreDown
from berth.leasing.holders import Identity
from berth.secret import Secret
from berth.store import operators
from berth.store.clusters import Order, release_cluster
from berth.store.heartbeats import Heartbeats
from berth.store.operators import Beat

Start = Callable[..., AbstractAsyncContextManager[World]]
C = "83.118.168.12/32"


def listed(service: str, address: str, **changes: Any) -> dict[str, Any]:
    return request_body(service, address=address, **changes)


def addresses(reply: Reply, kind: str) -> list[str]:
    return [one["address"] for one in reply.body[kind]]


async def lose(world: World, address: str) -> None:
    """As after a failover to a database that is a little older."""
    bare = address.partition("/")[0]
    async with world.ledger.engine.transaction() as tx:
        await tx.rows("DELETE FROM holders WHERE address = $1", bare)
        await tx.rows("DELETE FROM addresses WHERE address = $1", bare)
    world.ledger.memory.forget(["inet/4"])


async def test_a_cluster_that_agrees_with_the_ledger_has_no_differences(world: World) -> None:
    await world.post("a", address=A)
    reply = await report(world, 1, listed("a", "83.118.168.10"))
    assert reply.status == 200
    assert (reply.body["counted"], reply.body["frozen"], reply.body["addresses"]) == (True, False, 1)
    assert not any(reply.body[kind] for kind in ("adopted", "missing", "unknown", "conflict"))


async def test_what_the_ledger_lost_is_adopted_after_two_reports(world: World) -> None:
    await world.post("a", address=A, retention=7, deny=True)
    await world.post("b", address=B)
    await lose(world, A)
    items = (listed("a", A, retention=7, deny=True), listed("b", B))
    first = await report(world, 1, *items)
    assert (addresses(first, "missing"), addresses(first, "adopted")) == ([A], [])
    again = await report(world, 1, *items)  # the same report, sent twice: still one sighting
    assert addresses(again, "missing") == [A]
    second = await report(world, 2, *items)
    assert (addresses(second, "missing"), addresses(second, "adopted")) == ([], [A])
    entry = (await world.entries(A))["a"]
    assert (entry.active, entry.retention_days, entry.deny) == (True, 7, True)
    assert not (await report(world, 3, *items)).body["missing"]


async def test_a_report_that_comes_after_the_release_brings_nothing_back(world: World) -> None:
    await world.post("a", address=A)
    await world.post("b", address=B)
    late = (listed("a", A), listed("b", B))
    await report(world, 1, *late)
    await world.delete("a", address=A)
    expiring = await report(world, 2, *late)
    assert [(one["address"], one["reason"]) for one in expiring.body["conflict"]] == [(A, "Expiring")]
    await world.sweep()
    assert addresses(await report(world, 3, *late), "missing") == [A]
    assert not (await report(world, 4, listed("b", B))).body["missing"]
    assert await world.stored() == ["83.118.168.11"]


async def test_what_the_cluster_does_not_list_is_told_and_kept(world: World) -> None:
    await world.post("a", address=A)
    await world.post("forgotten", address=B)
    await world.post("elsewhere", address=C, cluster="other-cluster")
    reply = await report(world, 1, listed("a", A))
    assert addresses(reply, "unknown") == [B]
    assert len(await world.stored()) == 3


async def test_an_address_of_another_is_a_conflict_and_is_not_moved(world: World) -> None:
    await world.post("a", address=A)
    await world.post("theirs", address=B, cluster="other-cluster", secret=OTHER_SECRET)
    for sequence in (1, 2, 3):
        reply = await report(world, sequence, listed("a", A), listed("b", B))
        assert [(one["address"], one["reason"]) for one in reply.body["conflict"]] == [(B, "NoMatch")]
    assert list(await world.entries(B)) == ["theirs"]


async def test_who_opens_nothing_learns_nothing_and_does_not_count(world: World) -> None:
    await world.post("a", address=A)
    reply = await report(world, 1, listed("x", A, secret=OTHER_SECRET), epoch="stranger")
    assert (reply.body["counted"], reply.body["unknown"]) == (False, [])
    await report(world, 1, listed("a", A))
    assert (await world.delete("a", address=A)).status == 200


async def test_guesses_in_reports_are_slowed_down_too(start: Start) -> None:
    """Past the limit the right secret opens nothing either, until the pause is over."""
    seconds = Seconds()
    async with start(Options(limits=ApiLimits(wrong_secrets=5), seconds=seconds)) as world:
        await world.post("a", address=A)
        for number in range(1, 6):
            assert not (await report(world, number, listed("x", A, secret=f"guess-{number:04}"))).body[
                "counted"
            ]
        right = listed("a", A)
        assert not (await report(world, 6, right)).body["counted"]
        seconds.now += 2
        assert (await report(world, 7, right)).body["counted"]


async def test_t25_while_two_operators_speak_for_a_cluster_nothing_of_it_is_released(
    start: Start, tried: Callable[[int], None]
) -> None:
    """T25, the API's part: releases, rotations and cluster releases wait; in every replica."""
    await two_operators(start)
    tried(1)


async def test_a_successor_need_not_wait_for_one_that_said_it_leaves(world: World) -> None:
    await world.post("a", address=A)
    await report(world, 1, listed("a", A), epoch="old")
    await report(world, 2, listed("a", A), epoch="old", leaving=True)
    assert not (await report(world, 1, listed("a", A), epoch="new")).body["frozen"]
    assert (await world.delete("a", address=A)).status == 200


async def beat(world: World, sequence: int, **changes: Any) -> Reply:
    body = {"cluster_id": CLUSTER, "epoch": "one", "sequence": sequence, "alive_ms": 10_000}
    return await world.send("POST", "/v2/heartbeat", body | changes)


async def test_after_a_crash_the_successor_releases_within_30_seconds(world: World) -> None:
    """Two heartbeats of the silent one have to be missed; the successor's own ones tell it when."""
    await world.post("a", address=A)
    await report(world, 1, listed("a", A), epoch="old", heartbeat_seconds=30, alive_ms=10_000)
    await world.listen(seconds=10)
    assert (await beat(world, 2, epoch="old")).body["counted"]  # its last word: it crashes now
    await world.listen(seconds=16)
    assert (await report(world, 1, listed("a", A), epoch="new", alive_ms=10_000)).body["frozen"]
    await world.listen(seconds=5)
    assert (await beat(world, 2, epoch="new")).body["frozen"]
    assert (await world.delete("a", address=A)).status == 409
    await world.listen(seconds=5)
    assert not (await beat(world, 3, epoch="new")).body["frozen"]
    assert (await world.delete("a", address=A)).status == 200


async def test_t25_a_copy_beside_one_that_only_beats_is_noticed(
    world: World, tried: Callable[[int], None]
) -> None:
    """Between two reports, however long, its heartbeats keep the original alive."""
    tried(1)
    await world.post("a", address=A)
    await report(world, 1, listed("a", A), epoch="original", alive_ms=10_000)
    for sequence in range(2, 12):
        await world.listen(seconds=10)
        assert not (await beat(world, sequence, epoch="original")).body["frozen"]
    await world.listen(seconds=20)  # one heartbeat is lost, the next one late
    assert (await report(world, 1, listed("a", A), epoch="copy", alive_ms=10_000)).body["frozen"]
    assert (await world.delete("a", address=A)).status == 409
    assert (await beat(world, 12, epoch="original")).body["frozen"]


async def test_t25_a_copy_that_lists_nothing_is_noticed_by_what_it_would_release(
    world: World, tried: Callable[[int], None]
) -> None:
    """Its Services are gone, its records are there: what it has not released yet proves for whom it speaks,
    and is not compared.
    """
    tried(1)
    await world.post("a", address=A)
    await report(world, 1, listed("a", A), epoch="original", alive_ms=10_000)
    assert not (await report(world, 1, epoch="copy")).body["counted"]
    wrong = listed("a", A, secret=OTHER_SECRET)
    assert not (await report(world, 2, epoch="copy", releasing=[wrong])).body["counted"]
    proofs = [listed("a", A), listed("b", B)]
    copied = await report(world, 3, epoch="copy", releasing=proofs)
    assert (copied.body["counted"], copied.body["frozen"]) == (True, True)
    assert (copied.body["missing"], copied.body["conflict"], copied.body["adopted"]) == ([], [], [])
    assert (await world.delete("a", address=A)).status == 409
    again = await report(world, 4, epoch="copy", releasing=proofs)
    assert again.body["adopted"] == []


async def test_secrets_guessed_in_what_is_to_be_released_are_slowed_down_too(start: Start) -> None:
    """And a fault is named by its place in that list."""
    seconds = Seconds()
    async with start(Options(limits=ApiLimits(wrong_secrets=5), seconds=seconds)) as world:
        await world.post("a", address=A)
        for number in range(1, 6):
            await report(world, number, releasing=[listed("x", A, secret=f"guess-{number:04}")])
        assert not (await report(world, 6, releasing=[listed("a", A)])).body["counted"]
        many = [listed("a", A, secret=f"guess-{number:04}") for number in range(3)]
        refused = await report(world, 7, releasing=many)
        assert (refused.status, refused.body["message"][:13]) == (400, "releasing[2]:")


async def test_an_operator_that_announces_no_heartbeats_is_waited_for_as_before(world: World) -> None:
    await world.post("a", address=A)
    await report(world, 1, listed("a", A), epoch="old", heartbeat_seconds=60)
    await world.listen(seconds=85)
    assert (await report(world, 1, listed("a", A), epoch="new", alive_ms=10_000)).body["frozen"]
    await world.listen(seconds=10)
    assert not (await beat(world, 2, epoch="new")).body["frozen"]


async def test_a_late_heartbeat_brings_nobody_back(world: World) -> None:
    await world.post("a", address=A)
    await report(world, 1, listed("a", A), epoch="old", alive_ms=10_000)
    await report(world, 3, listed("a", A), epoch="old", leaving=True, alive_ms=10_000)
    await beat(world, 2, epoch="old")
    assert not (await report(world, 1, listed("a", A), epoch="new")).body["frozen"]


async def test_a_heartbeat_of_one_who_has_nothing_yet_is_known(world: World) -> None:
    await report(world, 1)
    assert (await beat(world, 2)).body["counted"]
    assert not (await beat(world, 2, epoch="other")).body["counted"]


async def test_many_heartbeats_are_noted_together(world: World) -> None:
    """In one transaction for all that wait."""
    for number in range(50):
        cluster = f"c{number}"
        await world.post("a", address=f"83.118.168.{number}", cluster=cluster)
        item = listed("a", f"83.118.168.{number}", cluster=cluster)
        await report(world, 1, item, cluster_id=cluster, epoch="e", alive_ms=10_000)
    heartbeats, begun = Heartbeats(world.ledger.engine), 0
    begin = world.ledger.engine.transaction

    def counted(**options: Any) -> Any:
        nonlocal begun
        begun += 1
        return begin(**options)

    world.advance(seconds=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(heartbeats, "_engine", SimpleNamespace(transaction=counted))
        waiting = [
            asyncio.ensure_future(heartbeats.hear(Beat(f"c{n}", "e", 2, alive_ms=10_000))) for n in range(50)
        ]
        await asyncio.sleep(0)
        await heartbeats.note()
        assert all(one.counted and not one.frozen for one in await asyncio.gather(*waiting))
    assert begun == 1
    _, rows = await operators.operators(world.ledger.engine)
    assert {row.sequence for row in rows} == {2}


async def test_a_heartbeat_without_a_database_is_told_so(world: World) -> None:
    heartbeats = Heartbeats(world.ledger.engine)

    def down(**_: Any) -> Any:
        raise StoreDown("away")

    heartbeats._engine = SimpleNamespace(transaction=down)
    waiting = asyncio.ensure_future(heartbeats.hear(Beat(CLUSTER, "e", 2, alive_ms=1)))
    await asyncio.sleep(0)
    with pytest.raises(StoreDown):
        await heartbeats.note()
    with pytest.raises(StoreDown):
        await waiting


async def test_a_fault_in_a_heartbeat_is_named(world: World) -> None:
    for changes, says in (
        ({"alive_ms": 0}, "alive_ms"),
        ({"epoch": ""}, "epoch"),
        ({"sequence": 0}, "sequence"),
    ):
        reply = await beat(world, 1, **changes) if "sequence" not in changes else await beat(world, 0)
        assert (reply.status, reply.body["reason"]) == (400, "Invalid")
        assert says in reply.message


async def test_the_last_word_of_a_cluster_is_remembered_as_long_as_it_has_addresses(world: World) -> None:
    engine = world.ledger.engine
    await world.post("a", address=A)
    await world.post("plain", address=B, cluster="never-reported")
    missing = [listed(f"s{number}", f"83.118.168.{number}") for number in range(20, 40)]
    for epoch in ("first", "second"):
        await report(world, 1, listed("a", A), *missing, epoch=epoch)
        await world.listen(seconds=100)
    world.advance(days=3)
    await world.api.heartbeats.note()
    await world.listen(seconds=100)
    await world.sweep()
    _, rows = await operators.operators(engine)
    now, silent = await operators.silent(engine)
    assert [(one.epoch, one.missing.count) for one in rows] == [("second", 0)], "one small row"
    assert [(one.cluster_id, one.entries) for one in silent] == [(CLUSTER, 1)]
    age = world.api.metrics.registry.get_sample_value("berth_clusters_silent_seconds") or 0
    assert age == pytest.approx((now - silent[0].seen_at) / 1000, abs=60)
    assert world.api.metrics.registry.get_sample_value("berth_clusters_silent") == 1
    await report(world, 2, listed("a", A), epoch="second")
    assert (await operators.silent(engine))[1] == [], "it is heard again"
    await world.delete("a", address=A)
    await world.listen(seconds=100)
    assert (await operators.silent(engine))[1] == [], "it holds nothing"
    await world.sweep()
    world.advance(days=3)
    await world.sweep()
    assert (await operators.operators(engine))[1] == []


async def test_a_late_report_takes_nothing_back(world: World) -> None:
    """It was sent before the operator said that it leaves, and ROR heard of the end in between."""
    await world.post("a", address=A)
    await report(world, 2, listed("a", A))
    await report(world, 3, listed("a", A), leaving=True)
    await release_cluster(world.ledger.engine, Order(CLUSTER, "ror", grace_ms=24 * 3600 * 1000))
    await report(world, 1, listed("a", A))
    assert (await world.entries(A))["a"].marked_by == "ror"


async def test_what_its_holder_gives_back_while_a_report_is_read_stays_given_back(world: World) -> None:
    await world.post("a", address=A)
    request = inventory.report(
        orjson.dumps({"cluster_id": CLUSTER, "epoch": "e", "sequence": 1, "addresses": [listed("a", A)]}),
        world.api.config.zones,
    ).listed[0]
    await world.delete("a", address=A)
    await world.ledger.submit(replace(request, only_marked_by="ror"))
    assert (await world.entries(A))["a"].marked_by == "service"


async def test_a_report_is_no_list_of_guesses(world: World) -> None:
    await world.post("a", address=A)
    guesses = [listed("x", A, secret=f"guess-{number:04}") for number in range(100)]
    reply = await report(world, 1, *guesses)
    assert (reply.status, reply.body["message"]) == (400, "addresses[2]: more than 2 secrets for one address")


async def test_last_words_count_although_nothing_is_left_to_list(world: World) -> None:
    """It was heard before its first Service came, and ends while its addresses are still expiring."""
    await report(world, 1, epoch="old")
    await world.post("a", address=A)
    await world.delete("a", address=A)
    reply = await report(world, 2, epoch="old", leaving=True)
    assert (reply.body["counted"], reply.body["unknown"]) == (True, [])
    await world.post("b", address=B)
    assert not (await report(world, 1, listed("b", B), epoch="new")).body["frozen"]


async def test_last_words_of_a_stranger_count_for_nothing(world: World) -> None:
    await world.post("a", address=A)
    reply = await report(world, 1, epoch="stranger", leaving=True)
    assert (reply.body["counted"], reply.body["unknown"]) == (False, [])


async def test_other_clusters_are_not_frozen_with_it(world: World) -> None:
    await world.post("a", address=A)
    await world.post("a", address=B, cluster="other-cluster")
    for epoch in ("original", "copy"):
        await report(world, 1, listed("a", A), epoch=epoch)
    assert (await world.delete("a", address=B, cluster="other-cluster")).status == 200


async def test_v197_a_living_operator_takes_back_what_ror_marked(world: World) -> None:
    """V-197: and what an administrator released it does not."""
    await world.post("a", address=A)
    await world.post("b", address=B)
    engine = world.ledger.engine
    await release_cluster(engine, Order(CLUSTER, "ror", grace_ms=24 * 3600 * 1000))
    reply = await report(world, 1, listed("a", A), listed("b", B))
    assert not reply.body["conflict"]
    assert (await world.entries(A))["a"].active
    await world.release_cluster()
    reply = await report(world, 2, listed("a", A), listed("b", B))
    assert addresses(reply, "conflict") == [A, B]
    assert not (await world.entries(A))["a"].active


async def test_v197_last_words_take_nothing_back(world: World) -> None:
    """Its cluster is torn down: ROR said so, and the operator ends in order."""
    await world.post("a", address=A)
    await world.post("b", address=B)
    await report(world, 1, listed("a", A), listed("b", B), listed("c", C))
    await release_cluster(world.ledger.engine, Order(CLUSTER, "ror", grace_ms=24 * 3600 * 1000))
    reply = await report(world, 2, listed("a", A), listed("b", B), listed("c", C), leaving=True)
    assert reply.body["counted"]
    assert not (await world.entries(A))["a"].active
    assert addresses(reply, "missing") == [C]
    assert not reply.body["adopted"]


async def test_a_fault_in_a_report_is_named(world: World) -> None:
    good = {"cluster_id": CLUSTER, "epoch": "one", "sequence": 1, "addresses": []}
    assert (await world.send("POST", "/v2/inventory", good)).status == 200
    for changes, says in FAULTS:
        reply = await world.send("POST", "/v2/inventory", good | changes)
        assert reply.status == 400
        assert says in reply.message


FAULTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"epoch": ""}, "epoch is required"),
    ({"cluster_id": ""}, "cluster_id is required"),
    ({"sequence": 0}, "sequence"),
    ({"sequence": 2**63}, "sequence"),
    ({"heartbeat_seconds": 301}, "heartbeat_seconds"),
    ({"addresses": {}}, "parse"),
    ({"addresses": [1]}, "addresses[0]"),
    ({"addresses": [request_body()]}, "addresses[0]"),
    ({"addresses": [request_body(address=A, cluster="other")]}, "addresses[0]"),
    ({"addresses": [request_body(address=A, secret="short")]}, "addresses[0]: secret"),
)


async def test_a_large_cluster_reports_in_one_call(world: World) -> None:
    items = [
        listed(f"s{number}", f"10.1.{number // 250}.{number % 250}", zone="hnet-private")
        for number in range(2000)
    ]
    first = await report(world, 1, *items)
    assert len(first.body["missing"]) == 2000
    assert len((await report(world, 2, *items)).body["adopted"]) == 2000
    assert len(await world.stored()) == 2000


async def test_the_client_reports_and_reads_the_differences(world: World) -> None:
    who = Identity("a", NAMESPACE, CLUSTER)
    ask = AddressCall(who, "inet", "ipv4", Secret("SuperSecret"), A)
    async with ApiClient(Access(world.url + "/v2")) as client:
        for sequence in (1, 2):
            compared = await client.report(Inventory(CLUSTER, "e", sequence, (ask,)))
        assert [one.address for one in compared.adopted] == [A]
        assert (compared.counted, compared.frozen, compared.missing) == (True, False, ())
        copied = await client.report(Inventory(CLUSTER, "f", 1, (ask,)))
        assert copied.frozen
        with pytest.raises(ApiRefused) as refused:
            await client.release(ask)
        assert (refused.value.status, refused.value.why) == (409, "ClusterFrozen")
