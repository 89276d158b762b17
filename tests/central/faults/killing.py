"""Servers killed at every step, and machines that lose their power. What was acknowledged stays, nothing is
lost or double.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from tests.support import power
from tests.support.central import CLUSTER, OTHER_SECRET, SECRET, Reply, request_body
from tests.support.lives import Life, Lives

from berth.central.backups import OURS
from berth.secret import Secret, load_pepper
from berth.store import importing, snapshot
from berth.store.engine import Engine, connect, sqlite_path
from berth.store.migrate import migrate
from berth.store.queries import LedgerRecord, all_records
from berth.store.snapshot import Wanted


async def scenario(life: Life, tag: str) -> dict[str, str]:
    """Register, join, update, release and register again; returns what was acknowledged: service →
    address. What is only pending is promised to nobody: on a slow machine it lapses meanwhile.
    """
    acknowledged: dict[str, str] = {}

    async def ask(method: str, name: str, **changes: object) -> Reply | None:
        reply = await life.ask(method, f"{tag}-{name}", **changes)
        if reply is not None and reply.status == 200 and method == "POST" and "pending" not in changes:
            acknowledged[f"{tag}-{name}"] = reply.address
        return reply

    first = await ask("POST", "a")
    if first is None:
        return acknowledged
    for step in (
        ("POST", "b", {"address": first.address}),
        ("POST", "a", {"retention": 7}),
        ("DELETE", "b", {"address": first.address, "retention": 3}),
        ("POST", "c", {"pending": True}),
        ("POST", "c", {}),
    ):
        if await ask(step[0], step[1], **step[2]) is None:
            return acknowledged
    await leave_and_sweep(life, tag, first.address)
    return acknowledged


async def leave_and_sweep(life: Life, tag: str, address: str) -> None:
    """Somebody who is not missed comes and goes; then the cleaner; then a report of what is there."""
    gone = await life.ask("POST", f"{tag}-gone")
    if gone is None or await life.ask("DELETE", f"{tag}-gone", address=gone.address) is None:
        return
    if await life.send("POST", "/sweep", {}) is None:
        return
    listed = [request_body(f"{tag}-a", address=address, retention=7)]
    body = {"cluster_id": CLUSTER, "epoch": tag, "sequence": 1, "heartbeat_seconds": 1, "leaving": True}
    await life.send("POST", "/v2/inventory", {**body, "addresses": listed})


async def records(engine: Engine) -> dict[str, LedgerRecord]:
    async with engine.snapshot() as tx:
        return {record.address.address: record async for record in all_records(tx)}


def check(found: dict[str, LedgerRecord], acknowledged: dict[str, str]) -> None:
    """I3: what was answered is there. I2: every address has a holder. I1: no holder is on two addresses."""
    on: dict[str, list[str]] = {}
    for address, record in found.items():
        assert record.holders, f"I2: {address} has no holder"
        for row in record.holders:
            on.setdefault(row.entry.identity.service_name, []).append(address)
    assert all(len(addresses) == 1 for addresses in on.values()), "I1: a holder is on two addresses"
    for service, address in acknowledged.items():
        assert on.get(service) == [address.partition("/")[0]], f"I3: {service} had {address}"


async def kill_through(run: Lives, engine: Engine, deaths: int, first: int = 1, **how: Any) -> int:
    """Lives that die at the first step, the second, and so on until one survives the whole scenario; then
    from the start again, until so many have died. Returns how many steps the scenario has.
    """
    acknowledged: dict[str, str] = {}
    died, step, steps = 0, first - 1, 0
    async with aiohttp.ClientSession() as session:
        while died < deaths or not steps:
            step += 1
            life = run.start(session, step, **how)
            acknowledged |= await scenario(life, f"s{died}-{step}")
            life.kill()
            check(await records(engine), acknowledged)
            died += life.silent
            if not life.silent:
                steps, step = max(steps, step - 1), 0
    return steps


@asynccontextmanager
async def opened(database: str) -> AsyncIterator[Engine]:
    engine = await connect(database)
    try:
        await migrate(engine)
        yield engine
    finally:
        await engine.close()


async def cut_through(run: Lives, database: str, cuts: int, seed: int, **how: Any) -> int:
    """The power goes at the first write or sync, the second, and so on; returns how many writes were lost.
    Nobody else has the file open meanwhile: a machine without power has no processes.
    """
    acknowledged: dict[str, str] = {}
    random, lost, step, done = Random(seed), 0, 0, 0
    async with aiohttp.ClientSession() as session:
        while done < cuts:
            step += 1
            life = run.start(session, step, power=True, **how)
            acknowledged |= await scenario(life, f"s{done}-{step}")
            life.kill()
            lost += power.cut(sqlite_path(database), random)
            async with opened(database) as engine:
                check(await records(engine), acknowledged)
                await whole(engine)
            done += life.silent
            step = step if life.silent else 0
    return lost


async def whole(engine: Engine) -> None:
    async with engine.snapshot() as tx:
        assert [tuple(row) for row in await tx.rows("PRAGMA integrity_check")] == [("ok",)]


async def rotate_through(run: Lives, engine: Engine, pepper_file: Path, rotations: int, **how: Any) -> None:
    """A server dies at some step of a rotation; afterwards one secret is right, and repeating it succeeds.
    One rotation in two is of an IPv6 address; and once a second service has joined, there is none.
    """
    async with aiohttp.ClientSession() as session:
        for step in range(1, rotations + 1):
            name, family = f"r{step}", ("ipv4", "ipv6")[step % 2]
            life = run.start(session)
            reply = await life.ask("POST", name, ip_family=family)
            assert reply is not None
            life.kill()
            dying = run.start(session, step % 25 + 1, **how)
            rotation = {"ip_family": family, "address": reply.address, "new_secret": OTHER_SECRET}
            answer = await dying.ask("POST", name, **rotation)
            dying.kill()
            pepper = load_pepper(pepper_file, create=False)
            hashed = (await records(engine))[reply.address.partition("/")[0]].address.secret_hash
            accepted = [one for one in (SECRET, OTHER_SECRET) if pepper.verifies(Secret(one), hashed)]
            assert len(accepted) == 1, f"I3: {accepted} are accepted"
            assert answer is None or accepted == [OTHER_SECRET]
            await _repeated(run.start(session), name, rotation)


async def back_up_through(run: Lives, folder: Path, deaths: int) -> int:
    """A server dies at the first write of a backup, the second, and so on until one is whole; then from the
    start again. Whatever has the name of a backup restores to all that was there, and the next whole one
    clears away what dead ones left. Returns how many steps a backup has.
    """
    died, step, steps = 0, 0, 0
    async with aiohttp.ClientSession() as session:
        there = await _some_addresses(run.start(session))
        while died < deaths or not steps:
            step += 1
            life = run.start(session, step, backups=str(folder))
            await life.send("POST", "/backup", {})
            life.kill()
            names = os.listdir(folder)
            whole = [name for name in names if OURS.fullmatch(name)]
            for name in whole:
                assert await restored(folder / name) == there, f"I3: {name} is not whole"
            died += life.silent
            if not life.silent:
                assert names == whole, "what a killed one left is still there"
                assert len(whole) <= 3
                steps, step = max(steps, step - 1), 0
    return steps


async def _some_addresses(life: Life) -> set[str]:
    replies = [await life.ask("POST", f"b{number}") for number in range(5)]
    life.kill()
    return {reply.address.partition("/")[0] for reply in replies if reply is not None}


async def restored(file: Path) -> set[str]:
    """What an empty database has after a restore."""
    with TemporaryDirectory() as home:
        async with opened(f"sqlite:///{home}/berth.db") as engine:
            await importing.restore(engine, snapshot.read(file, Wanted(backup=True, end=True)))
            return set(await records(engine))


async def _repeated(life: Life, name: str, rotation: dict[str, str]) -> None:
    again = await life.ask("POST", name, **rotation)
    assert again is not None
    assert again.status == 200
    shared = rotation | {"secret": OTHER_SECRET, "new_secret": SECRET}
    joined = await life.ask("POST", f"{name}-too", **(shared | {"new_secret": OTHER_SECRET}))
    assert joined is not None
    assert joined.status == 200
    refused = await life.ask("POST", name, **shared)
    assert refused is not None
    assert (refused.status, refused.body["reason"]) == (409, "SeveralHolders")
