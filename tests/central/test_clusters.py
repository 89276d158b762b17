"""V-190 to V-193: release of a whole cluster, and its undo, on both stores."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tests.support.central import CLUSTER, NAMESPACE, TOKEN, Options, Reply, World

from berth.leasing.holders import DAY_MS, Identity
from berth.store.clusters import Order, release_cluster, release_entry, undo

Start = Callable[..., AbstractAsyncContextManager[World]]
A = "83.118.168.10/32"
OTHER = "11111111-6b1d-4387-b8c4-b8c5d0e9b878"


async def populate(world: World) -> None:
    """X and Y (who denies) of one cluster, Z of another, all on A."""
    await world.post("x", address=A)
    await world.post("y", address=A, deny=True)
    await world.post("z", address=A, cluster=OTHER)


async def test_v190_the_cluster_route_wants_a_token(world: World) -> None:
    """V-190"""
    reply = await world.send("DELETE", "/v2/cluster", {"cluster_id": CLUSTER})
    assert reply == Reply(401, {"error": "Authorization required"})


async def test_v191_and_it_must_be_the_right_one(world: World) -> None:
    """V-191"""
    assert await world.release_cluster(token="wrong") == Reply(401, {"error": "Invalid authentication token"})


async def test_v192_a_cluster_release_skips_those_who_deny_and_other_clusters(world: World) -> None:
    """V-192"""
    await populate(world)
    reply = await world.release_cluster()
    assert reply.status == 200
    assert reply.message == "Cluster expiration set successfully"
    assert (reply.body["cluster_id"], reply.body["expired"], reply.body["skipped"]) == (CLUSTER, 1, 1)
    entries = await world.entries(A)
    assert [name for name in sorted(entries) if entries[name].active] == ["y", "z"]


async def test_v193_a_cluster_nobody_knows(world: World) -> None:
    """V-193"""
    reply = await world.release_cluster("nobody")
    text = "Could not deregister cluster: no addresses with assosiated cluster_id found in the database"
    assert (reply.status, reply.message) == (404, text)


async def test_the_bare_token_works_and_several_tokens_are_valid_at_once(start: Start) -> None:
    async with start(Options(tokens=("new-token", TOKEN))) as world:
        await populate(world)
        for header in (TOKEN, "new-token", "Bearer new-token"):
            reply = await world.send(
                "DELETE", "/v2/cluster", {"cluster_id": CLUSTER}, headers={"Authorization": header}
            )
            assert reply.status == 200


async def test_without_a_configured_token_there_is_no_such_route(start: Start) -> None:
    async with start(Options(tokens=())) as world:
        assert (await world.release_cluster()).status == 404


async def test_each_entrys_own_retention_counts_and_an_end_never_moves_back(world: World) -> None:
    await world.post("x", address=A, retention=5)
    await world.post("y", address="83.118.168.11")
    await world.delete("y", address="83.118.168.11", retention=1)
    before = (await world.entries("83.118.168.11"))["y"].expires_at
    await world.release_cluster()
    ends = (await world.entries(A))["x"].expires_at
    async with world.ledger.engine.snapshot() as tx:
        now = await tx.now()
    assert ends is not None
    assert abs(ends - now - 5 * DAY_MS) < 60_000
    assert (await world.entries("83.118.168.11"))["y"].expires_at == before


async def test_v197_a_living_cluster_recalls_what_was_marked(world: World) -> None:
    """V-197: within retention the holder's POST takes the mark away."""
    await world.post("x", address=A, retention=1)
    await release_cluster(world.ledger.engine, Order(CLUSTER, "ror", "event-1"))
    assert not (await world.entries(A))["x"].active
    assert (await world.post("x", retention=1)).address == A
    assert (await world.entries(A))["x"].active
    repeated = await release_cluster(world.ledger.engine, Order(CLUSTER, "ror", "event-1"))
    assert repeated.repeated
    assert (await world.entries(A))["x"].active


async def test_a_release_is_undone_until_the_sweep(world: World) -> None:
    await populate(world)
    await world.release_cluster()
    assert await undo(world.ledger.engine, "cluster_id", CLUSTER) == 1
    await world.sweep()
    assert sorted(await world.entries(A)) == ["x", "y", "z"]
    assert all(entry.active for entry in (await world.entries(A)).values())


async def test_an_undo_leaves_given_back_what_its_holder_gave_back(world: World) -> None:
    """Such an entry would be active for ever: its Service is gone, nobody comes to release it again."""
    await world.post("gone", address=A)
    await world.delete("gone", address=A, retention=5)
    await world.post("sooner", address=A)
    await world.delete("sooner", address=A, retention=5)
    given_back = (await world.entries(A))["sooner"].expires_at
    await world.post("lives", address=A)
    engine = world.ledger.engine
    await release_cluster(engine, Order(CLUSTER, "ror", grace_ms=DAY_MS))
    await release_entry(engine, "83.118.168.10", Identity("sooner", NAMESPACE, CLUSTER))
    assert await undo(engine, "cluster_id", CLUSTER) == 2
    entries = await world.entries(A)
    assert [name for name in sorted(entries) if entries[name].active] == ["lives"]
    assert entries["sooner"].expires_at == given_back


async def test_v196_a_toggled_deny_flag_counts(world: World) -> None:
    """V-196: the flag as last sent decides."""
    await populate(world)
    await world.post("y", address=A, deny=False)
    await release_cluster(world.ledger.engine, Order(CLUSTER, "ror"))
    assert not (await world.entries(A))["y"].active


async def test_a_body_without_a_cluster_is_refused(world: World) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for body in ({}, {"cluster_id": ""}, {"cluster_id": 5}):
        assert (await world.send("DELETE", "/v2/cluster", body, headers=headers)).status == 400
