"""T18, T28, T29, T34: many at once, guesses, and secrets that must be nowhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from random import Random

import aiohttp
import pytest
from tests.support.central import SECRET, Options, World, request_body
from tests.support.started import api_process

from berth.central.settings import Limits
from berth.leasing.holders import Entry, Identity
from berth.store.secrets import Secret
from berth.store.wishes import Granted, Refused, Register, Release, Released

pytestmark = pytest.mark.faults
Start = Callable[..., AbstractAsyncContextManager[World]]
NET = "zones: [{name: inet, ipv4: [192.0.2.1-192.0.2.254]}]"
POOL = "inet/4"


def entry(name: str) -> Entry:
    return Entry(Identity(name, "n", "c"))


async def test_t18_three_replicas_and_192_clients_on_one_net_that_is_nearly_full(
    start: Start, times: int
) -> None:
    """T18: 192 clients, 100 turns each; never two secrets on one address, and 254 of 254 usable
    afterwards.
    """
    secret, owner = Secret(SECRET), dict[str, str]()
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(start(Options(zones=NET))) for _ in range(3)]

        async def client(number: int) -> None:
            random, ledger = Random(number), replicas[number % 3].ledger
            mine: str | None = None
            for turn in range(100 * times):
                name = f"c{number}-{turn}"
                if mine is None:
                    got = await ledger.submit(Register(POOL, entry(name), secret))
                    if isinstance(got, Granted) and got.fresh:
                        assert owner.setdefault(got.address, name) == name, "one address, two holders"
                        mine, holder = got.address, name
                elif random.random() < 0.5:
                    del owner[mine]  # before it is asked: afterwards it may already be another's
                    released = await ledger.submit(Release(POOL, entry(holder), secret, mine))
                    assert released == Released(mine)
                    mine = None

        async def sweeper() -> None:
            while True:
                for world in replicas:
                    await world.sweeper.sweep()
                await asyncio.sleep(0.05)

        sweeping = asyncio.create_task(sweeper())
        for number in range(240):  # 95% full before the crowd comes
            await replicas[0].ledger.submit(Register(POOL, entry(f"base{number}"), secret))
        await asyncio.gather(*(client(number) for number in range(192)))
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        for world in replicas:
            await world.sweeper.sweep()
        held = await replicas[0].stored()
        assert len(held) == len(set(held)) == 240 + len(owner)
        while not isinstance(
            await replicas[1].ledger.submit(Register(POOL, entry(f"f{time.time_ns()}"), secret)), Refused
        ):
            pass
        assert len(await replicas[2].stored()) == 254


async def test_t34_joining_while_the_last_one_leaves_is_joined_or_new_never_lost(
    start: Start, times: int
) -> None:
    """T34: 100 races of a leaving holder, a sweep and a joining holder, in three replicas."""
    address = "83.118.168.10"
    async with start() as one, start() as two, start() as three:
        for number in range(100 * times):
            await one.post("leaver", address=address)
            leaving, joined, _ = await asyncio.gather(
                one.delete("leaver", address=address),
                two.post(f"joiner{number}", address=address),
                three.sweeper.sweep(),
            )
            assert (leaving.status, joined.status) == (200, 200)
            await three.sweeper.sweep()
            assert f"joiner{number}" in await one.entries(address)
            await two.delete(f"joiner{number}", address=address)
            await one.sweeper.sweep()


async def test_t29_guesses_learn_nothing_and_are_slowed_down(start: Start) -> None:
    """T29: unknown and wrong look the same; past five guesses an address answers 429."""
    async with start(Options(limits=Limits(wrong_secrets=5))) as world:
        await world.post("owner", address="83.118.168.10")
        known = await world.delete("x", address="83.118.168.10", secret="guess-0000")
        unknown = await world.delete("x", address="83.118.168.99", secret="guess-0000")
        assert known == unknown
        statuses = [
            (await world.post("x", address="83.118.168.10", secret=f"guess-{number:04}")).status
            for number in range(300)
        ]
        assert statuses.count(404) <= 6
        assert set(statuses) == {404, 429}
        assert list(await world.entries("83.118.168.10")) == ["owner"]


async def test_t29_slow_and_large_requests_do_not_hold_up_others(tmp_path: Path) -> None:
    """T29: 50 connections that never finish their headers or bodies, and one client that is served."""
    with api_process(tmp_path, "--body-seconds", "2", "--body-bytes", "1000") as api:
        port = int(api.url.rpartition(":")[2])
        halves = (b"POST /v2/add", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{")
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        for number, (_, writer) in enumerate(slow):
            writer.write(halves[number % 2])
        async with aiohttp.ClientSession() as session:
            for number in range(20):
                body = request_body(f"s{number}")
                async with session.post(api.url + "/v2/address", json=body) as response:
                    assert response.status == 200
            big = request_body("s" * 5000)
            async with session.post(api.url + "/v2/address", json=big) as response:
                assert response.status == 413
        for _, writer in slow:
            writer.close()
        assert api.stop() == 0


async def test_t28_the_canary_is_nowhere(tmp_path: Path) -> None:
    """T28: a secret unique to this run, sent in every way; afterwards it is in no file and no answer."""
    canary = f"canary-{time.time_ns()}"
    (tmp_path / "hec").write_text("token-" + canary)
    flags = ["--splunk-url", "http://127.0.0.1:1", "--splunk-token-file", "hec", "--splunk-index", "i"]
    answers = []
    with api_process(tmp_path, *flags, "--log-level", "debug") as api:
        async with aiohttp.ClientSession() as session:
            for body in (
                request_body(secret=canary),
                request_body("y", secret=canary, address="83.118.168.0"),
                request_body("y", secret=SECRET, new_secret=canary),
                request_body(secret=canary, zone="mars"),
                request_body(SECRET=canary, secret="short"),
                {"secret": canary, "service": canary},
                {"deep": [{"secret": canary}]},
            ):
                for method, path in (
                    ("POST", "/v2/address"),
                    ("DELETE", "/v2/service"),
                    ("DELETE", "/v2/cluster"),
                ):
                    async with session.request(method, api.url + path, json=body) as response:
                        answers.append(await response.text())
            for raw in (f'{{"secret": "{canary}",}}', canary, f'{{"secret": {canary}}}'):
                async with session.post(api.url + "/", data=raw) as response:
                    answers.append(await response.text())
            async with session.get(api.url + "/metrics") as response:
                answers.append(await response.text())
        assert api.stop() == 0
    (tmp_path / "hec").unlink()
    assert canary not in "".join(answers)
    assert hits(tmp_path, canary) == []


def hits(folder: Path, canary: str) -> list[str]:
    return [
        file.name for file in folder.rglob("*") if file.is_file() and canary.encode() in file.read_bytes()
    ]
