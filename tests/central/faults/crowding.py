"""Many at once: three replicas and a crowd on a net that is nearly full, and races of coming and going."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from random import Random

from tests.support.central import SECRET, Options, World

from berth.leasing.decide import Refusal
from berth.leasing.holders import Entry, Identity
from berth.secret import Secret
from berth.store.requests import Granted, RegisterRequest, Released, ReleaseRequest

Start = Callable[..., AbstractAsyncContextManager[World]]
NET = "zones: [{name: inet, ipv4: [192.0.2.1-192.0.2.254]}]"
POOL = "inet/4"
KEY = Secret(SECRET)
CLIENTS = 192


def entry(name: str) -> Entry:
    return Entry(Identity(name, "n", "c"))


class Crowd:
    """Clients that come and go, and what each of them was told."""

    def __init__(self, replicas: list[World], seed: int) -> None:
        self.replicas = replicas
        self.seed = seed
        self.owner: dict[str, str] = {}
        self.done = 0

    async def client(self, number: int, operations: int) -> None:
        """Take an address, give it back, take another; one in ten turns is only a look."""
        random = Random(f"{self.seed} {number}")
        ledger = self.replicas[number % len(self.replicas)].ledger
        mine, holder = "", ""
        for turn in range(operations):
            self.done += 1
            if mine and random.random() < 0.9:
                del self.owner[mine]  # before it is asked: afterwards it may already be another's
                assert await ledger.submit(ReleaseRequest(POOL, entry(holder), KEY, mine)) == Released(mine)
                mine = ""
                continue
            name = holder if mine else f"c{number}-{turn}"
            got = await ledger.submit(RegisterRequest(POOL, entry(name), KEY))
            if isinstance(got, Granted):
                assert got.fresh is not bool(mine), "I5: a holder was moved"
                assert self.owner.setdefault(got.address, name) == name, "I1: one address, two holders"
                mine, holder = got.address, name

    async def sweep_forever(self) -> None:
        while True:
            for world in self.replicas:
                await world.sweeper.sweep()
            await asyncio.sleep(0.05)


async def crowd(start: Start, operations: int, seed: int) -> int:
    """So many operations of 192 clients in three replicas; afterwards 254 of 254 addresses can be used.
    Returns how many there were.
    """
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(start(Options(zones=NET))) for _ in range(3)]
        one = Crowd(replicas, seed)
        for number in range(240):  # 95% full before the crowd comes
            await replicas[0].ledger.submit(RegisterRequest(POOL, entry(f"base{number}"), KEY))
        sweeping = asyncio.create_task(one.sweep_forever())
        try:
            await asyncio.gather(*(one.client(n, operations // CLIENTS + 1) for n in range(CLIENTS)))
        finally:
            sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await sweeping
        assert one.done >= operations
        await _nothing_lost(one)
        return one.done


async def _nothing_lost(one: Crowd) -> None:
    for world in one.replicas:
        await world.sweeper.sweep()
    held = await one.replicas[0].stored()
    assert len(held) == len(set(held)) == 240 + len(one.owner), "I2: an address is lost or double"
    filling = one.replicas[1].ledger
    while not isinstance(
        await filling.submit(RegisterRequest(POOL, entry(f"f{time.time_ns()}"), KEY)), Refusal
    ):
        pass
    assert len(await one.replicas[2].stored()) == 254, "I2: not every address can be used"


async def races(start: Start, rounds: int) -> int:
    """A holder leaves, the cleaner runs and another joins, in three replicas: joined, or new, never lost.
    Returns how many times.
    """
    address = "83.118.168.10"
    async with start() as one, start() as two, start() as three:
        for number in range(rounds):
            await one.post("leaver", address=address)
            leaving, joined, _ = await asyncio.gather(
                one.delete("leaver", address=address),
                two.post(f"joiner{number}", address=address),
                three.sweeper.sweep(),
            )
            assert (leaving.status, joined.status) == (200, 200), "I3: who was there is lost"
            await three.sweeper.sweep()
            assert f"joiner{number}" in await one.entries(address), "I3: who joined is lost"
            await two.delete(f"joiner{number}", address=address)
            await one.sweeper.sweep()
        return rounds
