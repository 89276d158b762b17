"""Whoever comes while a batch is under way goes with the next; each has its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from berth.control.batching import Batcher, Tasks


class Server:
    """Answers when the gate is open; negative numbers fail, and a zero fails everybody."""

    def __init__(self, *, fitting: int = 100, at_once: int = 1) -> None:
        self.gate = asyncio.Event()
        self.batches: list[list[int]] = []
        self.idle = 0
        self.tasks = Tasks()

        def fits(waiting: Iterable[int]) -> int:
            return fitting

        self.batcher: Batcher[int, str] = Batcher(
            self._send, self.tasks, fitting=fits, at_once=at_once, idle=self._is_idle
        )

    def ask(self, number: int) -> asyncio.Task[str]:
        return asyncio.create_task(self.batcher.ask(number))

    async def _send(self, group: list[int]) -> list[str | Exception]:
        self.batches.append(group)
        await self.gate.wait()
        if 0 in group:
            raise KeyError("everybody")
        return [str(one) if one > 0 else ValueError(str(one)) for one in group]

    def _is_idle(self) -> None:
        self.idle += 1


async def begun() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_who_comes_meanwhile_shares_the_next_batch_in_order() -> None:
    server = Server(fitting=3)
    first = server.ask(1)
    await begun()
    others = [server.ask(number) for number in range(2, 7)]
    await begun()
    assert len(server.batcher) == 5
    server.gate.set()
    assert await asyncio.gather(first, *others) == ["1", "2", "3", "4", "5", "6"]
    assert server.batches == [[1], [2, 3, 4], [5, 6]]
    await begun()
    assert server.idle == 1


async def test_so_many_batches_are_under_way_and_no_more() -> None:
    server = Server(fitting=1, at_once=2)
    asked = [server.ask(number) for number in (1, 2, 3)]
    await begun()
    assert server.batches == [[1], [2]]
    server.gate.set()
    assert await asyncio.gather(*asked) == ["1", "2", "3"]


async def test_an_error_is_for_its_own_and_one_of_the_whole_batch_for_everybody() -> None:
    server = Server()
    server.gate.set()
    found = await asyncio.gather(*map(server.ask, (1, -2, 3)), return_exceptions=True)
    assert [type(one) for one in found] == [str, ValueError, str]
    found = await asyncio.gather(*map(server.ask, (1, 0)), return_exceptions=True)
    assert [type(one) for one in found] == [KeyError, KeyError]


async def test_who_gives_up_takes_nobody_along_and_is_not_sent_if_it_waited() -> None:
    server = Server()
    first = server.ask(1)
    await begun()
    second, third = server.ask(2), server.ask(3)
    await begun()
    first.cancel()  # its batch is under way
    second.cancel()  # its turn had not come
    await begun()
    server.gate.set()
    assert await third == "3"
    assert server.batches == [[1], [3]]


async def test_the_owner_ends_what_is_under_way() -> None:
    server = Server()
    async with server.tasks:
        asked = server.ask(1)
        await begun()
    with pytest.raises(asyncio.CancelledError):
        await asked
