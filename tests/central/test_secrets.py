"""V-185 to V-189: replacing a secret, on both stores; and how secrets are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support.central import OTHER_SECRET, SECRET, World

from berth.secret import Pepper, Secret, load_pepper
from berth.store.clusters import Order, release_cluster, undo

Start = Callable[..., AbstractAsyncContextManager[World]]
A = "83.118.168.10/32"
SEVERAL = "Could not register address: multiple services registered. unable to change secret"
MISMATCH = "Could not register address: service mismatch. unable to change secret"


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_v185_no_undo_brings_back_who_does_not_know_the_new_secret(world: World) -> None:
    """V-185: its time was over, so it had no say; it must not come back beside whoever is there now."""
    await world.post("gone", address=A, cluster="deleted")
    await release_cluster(world.ledger.engine, Order("deleted", "ror"))
    assert (await world.post("heir", address=A, new_secret=OTHER_SECRET)).status == 200
    await undo(world.ledger.engine, "cluster_id", "deleted")
    entries = await world.entries(A)
    assert [name for name, entry in entries.items() if entry.active] == ["heir"]


async def test_v185_the_only_holder_replaces_the_secret(world: World) -> None:
    """V-185"""
    await world.post(address=A)
    assert (await world.post(address=A, new_secret=OTHER_SECRET)).message == "IP-address updated!"
    assert (await world.post("y", address=A)).status == 404
    assert (await world.delete(address=A)).status == 404
    assert (await world.post(address=A, secret=OTHER_SECRET)).status == 200


async def test_v185_a_replacement_can_be_repeated(world: World) -> None:
    """V-185: a client that got no answer asks again; success if it is already new."""
    await world.post(address=A)
    for _ in range(3):
        assert (await world.post(address=A, new_secret=OTHER_SECRET)).status == 200
    assert (await world.post(new_secret=OTHER_SECRET)).address == A


async def test_v186_shared_addresses_keep_their_secret(world: World) -> None:
    """V-186"""
    await world.post("x", address=A)
    await world.post("y", address=A)
    reply = await world.post("x", address=A, new_secret=OTHER_SECRET)
    assert (reply.status, reply.message) == (409, SEVERAL)


async def test_v186_retained_holders_count_and_lapsed_ones_do_not(world: World) -> None:
    """V-186"""
    await world.post("x", address=A)
    await world.post("y", address=A)
    await world.delete("y", address=A, retention=1)
    assert (await world.post("x", address=A, new_secret=OTHER_SECRET)).message == SEVERAL
    world.advance(days=1, seconds=1)
    assert (await world.post("x", address=A, new_secret=OTHER_SECRET)).status == 200


async def test_v187_another_service_cannot_replace_it(world: World) -> None:
    """V-187"""
    await world.post("x", address=A)
    reply = await world.post("y", address=A, new_secret=OTHER_SECRET)
    assert (reply.status, reply.message) == (409, MISMATCH)
    assert list(await world.entries(A)) == ["x"]


async def test_v188_an_equal_new_secret_is_an_ordinary_update(world: World) -> None:
    """V-188"""
    await world.post("x", address=A)
    await world.post("y", address=A)
    assert (await world.post("x", address=A, new_secret=SECRET)).message == "IP-address updated!"


async def test_v189_a_short_new_secret_is_refused(world: World) -> None:
    """V-189"""
    await world.post(address=A)
    assert (await world.post(address=A, new_secret="12345")).status == 400
    assert (await world.post(address=A)).status == 200


async def test_replacing_the_secret_of_a_free_address_matches_nothing(world: World) -> None:
    assert (await world.post(address=A, new_secret=OTHER_SECRET)).status == 404
    assert (await world.post(new_secret=OTHER_SECRET)).status == 404
    assert await world.stored() == []


async def test_replacement_and_join_at_once_leave_one_accepted_secret(world: World) -> None:
    await world.post("x", address=A)
    replies = await asyncio.gather(
        world.post("x", address=A, new_secret=OTHER_SECRET),
        *(world.post(f"y{number}", address=A) for number in range(5)),
    )
    accepted = [
        secret
        for secret in (SECRET, OTHER_SECRET)
        if (await world.post("x", address=A, secret=secret)).status == 200
    ]
    assert len(accepted) == 1
    assert {reply.status for reply in replies} <= {200, 404, 409}


async def test_equal_secrets_do_not_look_equal_and_no_secret_is_stored(world: World, tmp_path: Path) -> None:
    await world.post("x", address=A)
    await world.post("y", address="83.118.168.11")
    async with world.ledger.engine.snapshot() as tx:
        found = await tx.rows("SELECT salt, digest FROM addresses")
    assert len({bytes(row[0]) for row in found}) == len({bytes(row[1]) for row in found}) == 2
    assert SECRET.encode() not in everything_in(tmp_path)


async def test_a_rotated_pepper_opens_old_seals_and_renews_them(start: Start, tmp_path: Path) -> None:
    async with start() as world:
        await world.post(address=A)
    file = tmp_path / "pepper"
    old = file.read_text()
    file.write_text("knew:" + "ab" * 32 + "\n" + old)
    async with start() as world:
        assert (await world.post(address=A)).status == 200
    file.write_text("knew:" + "ab" * 32 + "\n")
    async with start() as world:
        assert (await world.post(address=A)).status == 200


def test_a_secret_never_prints_itself() -> None:
    secret = Secret(SECRET)
    assert SECRET not in f"{secret} {secret!r} {[secret]} {Pepper({'k': b'x' * 32}).hash(secret)!r}"
    with pytest.raises(TypeError):
        __import__("pickle").dumps(secret)


def test_the_pepper_file_is_private_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "pepper"
    load_pepper(file, create=True)
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(Exception, match="0600"):
        load_pepper(file, create=True)
    with pytest.raises(Exception, match="missing"):
        load_pepper(tmp_path / "none", create=False)
    file.chmod(0o660)  # as a volume with fsGroup shows it
    load_pepper(file, create=False)
    file.chmod(0o600)
    file.write_text("k1:zz\n")
    with pytest.raises(Exception, match="id:hex"):
        load_pepper(file, create=True)


def test_nothing_opens_a_missing_or_unknown_seal() -> None:
    pepper, other = Pepper({"a": b"x" * 32}), Pepper({"b": b"y" * 32})
    hashed = pepper.hash(Secret(SECRET))
    assert pepper.verifies(Secret(SECRET), hashed)
    assert not pepper.verifies(Secret(OTHER_SECRET), hashed)
    assert not pepper.verifies(Secret(SECRET), None)
    assert not other.verifies(Secret(SECRET), hashed)
