"""The leader's heartbeat: it goes on, whatever the other side says in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from berth.central.client import Compared, Heartbeat, Inventory
from berth.control.cache import Cache
from berth.dialects.vitistack.heartbeat import Inventories
from berth.dialects.vitistack.record_store import Filed
from berth.errors import ApiRefused
from berth.metrics import Metrics

ENOUGH = 5


class Api:
    """Answers in turn; then for ever as the last time."""

    def __init__(self, *answers: Compared | ApiRefused) -> None:
        self.answers = list(answers)
        self.heard: list[bool] = []  # whether it said that it leaves
        self.reports: list[Inventory] = []
        self.beats: list[Heartbeat] = []
        self.noted: list[Compared | ApiRefused] = [Compared(True, False)]  # answers to heartbeats, in turn
        self.enough = asyncio.Event()

    async def report(self, inventory: Inventory) -> Compared:
        self.heard.append(inventory.leaving)
        self.reports.append(inventory)
        if len(self.heard) == ENOUGH:
            self.enough.set()
        return _next(self.answers)

    async def beat(self, heartbeat: Heartbeat) -> Compared:
        self.beats.append(heartbeat)
        return _next(self.noted)


def _next(answers: list[Compared | ApiRefused]) -> Compared:
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if isinstance(answer, ApiRefused):
        raise answer
    return answer


async def told(api: Api, seconds: float = 0.001, thawed: Callable[[], None] | None = None) -> Inventories:
    async def cluster_id() -> str:
        return "c"

    parts: Any = SimpleNamespace(
        settings=SimpleNamespace(api_url="http://127.0.0.1:1", heartbeat_seconds=seconds),
        places=SimpleNamespace(cluster_id=cluster_id),
    )
    client: Any = api
    inventories = Inventories(parts, Filed(Cache()), client, Metrics())
    inventories.thawed = thawed or inventories.thawed
    running = asyncio.create_task(inventories.run())
    async with asyncio.timeout(10):
        await api.enough.wait()
    assert not any(api.heard), "it said that it leaves"
    running.cancel()
    await asyncio.wait([running])
    return inventories


async def test_one_answer_of_a_proxy_does_not_silence_it() -> None:
    """Otherwise a copy of the cluster would be the only one that speaks."""
    api = Api(Compared(True, False), ApiRefused(404, "no route"), Compared(True, False))
    await told(api)
    assert api.heard[-1], "its last words were not said"


async def test_an_api_that_knows_no_reports_keeps_nothing_back() -> None:
    assert (await told(Api(ApiRefused(404, "no such call")))).heard


async def test_between_two_reports_it_says_that_it_is_there() -> None:
    api = Api(Compared(True, False))
    await told(api, seconds=0.35)
    said: list[Inventory | Heartbeat] = [*api.reports, *api.beats]
    assert {one.alive_ms for one in said} == {117}
    assert len(api.beats) >= ENOUGH
    numbers = [one.sequence for one in said]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


async def test_a_heartbeat_nobody_knows_is_followed_by_a_report() -> None:
    api = Api(Compared(True, False))
    api.noted = [Compared(False, False)]
    await told(api, seconds=0.6)
    assert len(api.beats) >= ENOUGH - 1


async def test_an_api_without_heartbeats_is_promised_none() -> None:
    """A report that announced them is followed at once by one that does not."""
    api = Api(Compared(True, False))
    api.noted = [ApiRefused(404, "no such call")]
    await told(api, seconds=0.35)
    assert [one.alive_ms for one in api.reports[:3]] == [117, 0, 0]


async def test_when_the_other_one_is_silent_what_waits_is_looked_at() -> None:
    api, calls = Api(Compared(True, True), Compared(True, False)), []
    api.noted = [Compared(True, True), Compared(True, False)]
    await told(api, seconds=0.35, thawed=lambda: calls.append(len(api.beats)))
    assert calls == [2]
