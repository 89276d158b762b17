"""T18, T28, T29, T34: many at once, guesses, and secrets that must be nowhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest
from tests.central.faults.crowding import NET, crowd, races
from tests.central.faults.killing import opened
from tests.central.faults.telling import canary
from tests.faults.books import Books
from tests.faults.store_auditor import store_right
from tests.support.central import Options, Seconds, World, request_body
from tests.support.started import api_process

from berth.central.settings import ApiLimits

pytestmark = pytest.mark.faults
Start = Callable[..., AbstractAsyncContextManager[World]]


async def test_t18_three_replicas_and_192_clients_on_one_net_that_is_nearly_full(
    start: Start, database: str, tmp_path: Path, times: int, seed: int, tried: Callable[[int], None]
) -> None:
    """T18: 20,000 operations on each store."""
    async with opened(database), store_right(Books(database, NET), tmp_path):
        tried(await crowd(start, 20_000 * times, seed))


async def test_t34_joining_while_the_last_one_leaves_is_joined_or_new_never_lost(
    start: Start, database: str, tmp_path: Path, times: int, tried: Callable[[int], None]
) -> None:
    """T34: 100 races of a leaving holder, a sweep and a joining holder, in three replicas."""
    async with opened(database), store_right(Books(database, shared=True), tmp_path):
        tried(await races(start, 100 * times))


async def test_t29_guesses_learn_nothing_and_are_slowed_down(
    start: Start, tried: Callable[[int], None]
) -> None:
    """T29: unknown and wrong look the same; past five guesses an address answers 429, and each further one
    costs a longer pause.
    """
    seconds = Seconds()
    async with start(Options(limits=ApiLimits(wrong_secrets=5), seconds=seconds)) as world:
        await world.post("owner", address="83.118.168.10")
        known = await world.delete("x", address="83.118.168.10", secret="guess-0000")
        unknown = await world.delete("x", address="83.118.168.99", secret="guess-0000")
        assert known == unknown
        statuses = []
        for number in range(1000):
            guess = await world.post("x", address="83.118.168.10", secret=f"guess-{number:04}")
            statuses.append(guess.status)
            seconds.now += 0.007  # seven seconds in all: room for guesses after 1, 2 and 4 of them
        assert statuses[:4] == [404] * 4, "the fifth wrong one, after that above"
        assert (statuses.count(404), statuses.count(429)) == (6, 994)
        assert list(await world.entries("83.118.168.10")) == ["owner"]
        tried(len(statuses))


async def test_t29_slow_and_large_requests_do_not_hold_up_others(
    tmp_path: Path, tried: Callable[[int], None]
) -> None:
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
    tried(len(slow))


async def test_t28_the_canary_is_nowhere(tmp_path: Path, tried: Callable[[int], None]) -> None:
    """T28: a secret unique to this run, sent in every way; afterwards it is in no file and no answer."""
    await canary(tmp_path)
    tried(1)
