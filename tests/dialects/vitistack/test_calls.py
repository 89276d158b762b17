"""How calls reach the IPAM-API: alone while that is quick, together under load, one by one for upstream's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
import pytest
from aiohttp import web

from berth.central.client import Access, AddressCall, ApiClient
from berth.control.batching import LoadGauge, Tasks
from berth.dialects.vitistack.calls import Calls
from berth.dialects.vitistack.ipam_client import is_down
from berth.errors import ApiDown, ApiRefused
from berth.leasing.holders import Identity
from berth.metrics import Metrics
from berth.secret import Secret


@dataclass(slots=True)
class FakeApi:
    """Answers with the Service's name for an address. `knows_batches` False: a page for every path."""

    knows_batches: bool = True
    paths: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        body = orjson.loads(await request.read())
        await self.gate.wait()
        if request.path == "/v2/batch":
            if not self.knows_batches:
                return web.Response(text="<html>", content_type="text/html")
            calls = [self._answer(one["body"]) for one in body["calls"]]
            return _json({"answers": [{"status": status, "body": told} for status, told in calls]})
        status, told = self._answer(body)
        return _json(told, status)

    def _answer(self, body: dict[str, dict[str, str]]) -> tuple[int, dict[str, str]]:
        name = body["service"]["service_name"]
        return (404, {"message": "no"}) if name == "bad" else (200, {"address": name})


def _json(body: Mapping[str, object], status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


@asynccontextmanager
async def calling(fake: FakeApi) -> AsyncIterator[Calls]:
    runner = web.ServerRunner(web.Server(fake, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with ApiClient(Access(f"http://127.0.0.1:{runner.addresses[0][1]}/v2", seconds=5)) as client:
            yield Calls(client, Metrics(), LoadGauge(), Tasks())
    finally:
        await runner.cleanup()


def ask(name: str) -> AddressCall:
    return AddressCall(Identity(name, "n", "c"), "inet", "ipv4", Secret("SuperSecret"))


async def test_one_call_is_the_documented_one() -> None:
    fake = FakeApi()
    fake.gate.set()
    async with calling(fake) as calls:
        assert await calls.register(ask("one")) == "one"
        await calls.release(ask("one"))
    assert fake.paths == ["/v2/address", "/v2/service"]


@pytest.mark.parametrize("knows_batches", [True, False])
async def test_many_at_once_get_each_its_own_answer(knows_batches: bool) -> None:
    """Upstream: a page for a path it does not know is no answer, so they go one by one."""
    fake = FakeApi(knows_batches)
    names = [f"web-{number}" for number in range(50)]
    async with calling(fake) as calls:
        tasks = [asyncio.create_task(calls.register(ask(name))) for name in [*names, "bad"]]
        given_up = asyncio.create_task(calls.register(ask("nobody")))
        await asyncio.sleep(0)
        given_up.cancel()
        fake.gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert found[:-1] == names
        assert isinstance(found[-1], ApiRefused)
        before = len(fake.paths)
        assert await asyncio.gather(*(calls.register(ask(name)) for name in names)) == names
    assert ("/v2/batch" in fake.paths[before:]) is knows_batches
    assert len(fake.paths) < 30 if knows_batches else len(fake.paths) > 100


async def test_no_answer_is_told_to_each() -> None:
    async with ApiClient(Access("http://127.0.0.1:9/v2", seconds=1)) as client:
        calls = Calls(client, Metrics(), LoadGauge(), Tasks())
        found = await asyncio.gather(
            *(calls.register(ask(f"web-{number}")) for number in range(20)), return_exceptions=True
        )
    assert all(isinstance(one, ApiDown) for one in found)


@pytest.mark.parametrize(
    "text",
    [
        "Could not register address: the requested address is not valid for the provided zone",
        "Could not register address: no matching address found with the provided secret, zone and address",
        "Could not register address: no available prefix found for zone inet_v4",
        "Could not register address: multiple services registered. unable to change secret",
        "Could not register address: service mismatch. unable to change secret",
        "Could not deregister service: service does not exist for this address",
    ],
)
def test_what_upstream_refuses_with_500_is_no_outage(text: str) -> None:
    """H-53: else such a Service would be admitted where an outage is excused."""
    assert not is_down(ApiRefused(500, text))


def test_an_outage_is_one_whatever_its_form() -> None:
    assert is_down(ApiDown("the IPAM-API gave no answer"))
    assert is_down(ApiRefused(500, "Could not register address: server selection timeout"))
    assert not is_down(ApiRefused(404, "no"))
