"""The leader's heartbeat: it goes on, whatever the other side says in between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from berth.central.client import Compared, Inventory
from berth.control.cache import Cache
from berth.dialects.vitistack.filing import Filed
from berth.dialects.vitistack.inventory import Inventories
from berth.errors import ApiRefused
from berth.metrics import Metrics

ENOUGH = 5


class Api:
    """Answers in turn; then for ever as the last time."""

    def __init__(self, *answers: Compared | ApiRefused) -> None:
        self.answers = list(answers)
        self.heard: list[bool] = []  # whether it said that it leaves
        self.enough = asyncio.Event()

    async def report(self, inventory: Inventory) -> Compared:
        self.heard.append(inventory.leaving)
        if len(self.heard) == ENOUGH:
            self.enough.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ApiRefused):
            raise answer
        return answer


async def told(api: Api) -> Inventories:
    async def cluster_id() -> str:
        return "c"

    parts: Any = SimpleNamespace(
        settings=SimpleNamespace(api_url="http://127.0.0.1:1", vitistack_heartbeat_seconds=0.001),
        places=SimpleNamespace(cluster_id=cluster_id),
    )
    client: Any = api
    inventories = Inventories(parts, Filed(Cache()), client, Metrics())
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
