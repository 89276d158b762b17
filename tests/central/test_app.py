"""V-200 to V-206 and what every request passes through: paths, limits, readiness, restart."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.support.central import OTHER_SECRET, SECRET, Options, Seconds, World, request_body, running
from tests.support.eventually import eventually
from tests.support.postgres import PostgresServer

from berth.central.integrations.event_log import EventLog, shown
from berth.central.settings import ApiLimits
from berth.central.zones import parse_zones

Start = Callable[..., AbstractAsyncContextManager[World]]
A = "83.118.168.10/32"


async def test_v200_the_description_is_a_page_and_a_file(world: World) -> None:
    """V-200"""
    page = await world.send("GET", "/swagger/index.html")
    assert page.status == 200
    assert "/v2/address" in page.body
    assert not re.search(r'(src|href)="https?://', page.body)
    description = await world.send("GET", "/swagger/doc.json")
    assert set(description.body["paths"]) >= {"/address", "/service", "/cluster"}
    assert (await world.send("GET", "/openapi.json")).body == description.body


async def test_v201_unknown_paths_and_methods_are_json_errors(world: World) -> None:
    """V-201"""
    nowhere = await world.send("GET", "/nope")
    assert (nowhere.status, set(nowhere.body)) == (404, {"message", "reason"})
    wrong = await world.send("PUT", "/v2/address", {})
    assert (wrong.status, set(wrong.body)) == (405, {"message", "reason"})


async def test_the_front_page_links_to_the_description(world: World) -> None:
    page = await world.send("GET", "/")
    assert page.status == 200
    assert "/swagger/index.html" in page.body


@pytest.mark.postgres
async def test_v202_a_store_that_is_down_is_not_ready_but_alive(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """V-202: PostgreSQL is killed, and comes back."""
    async with running(postgres.database(), tmp_path / "pepper") as world:
        assert await _ready(world)
        await asyncio.to_thread(postgres.kill)
        try:
            await _not_ready_but_alive(world)
            reply = await world.post()
            assert (reply.status, reply.body["reason"]) == (503, "StoreDown")
        finally:
            await asyncio.to_thread(postgres.restart)
        await eventually(lambda: _ready(world), 60)
        assert (await world.post()).status == 200


async def test_v202_a_database_file_out_of_reach_is_not_ready_but_alive(tmp_path: Path) -> None:
    """V-202: SQLite's folder is moved away, and back."""
    there, away = tmp_path / "there", tmp_path / "away"
    there.mkdir()
    async with running(f"sqlite:///{there}/berth.db", tmp_path / "pepper") as world:
        assert await _ready(world)
        there.rename(away)
        await _not_ready_but_alive(world)
        away.rename(there)
        assert await _ready(world)


async def _ready(world: World) -> bool:
    return (await world.send("GET", "/readyz")).status == 200


async def _not_ready_but_alive(world: World) -> None:
    ready = await world.send("GET", "/readyz")
    assert (ready.status, "StoreDown" in ready.body["reason"]) == (503, True)
    assert (await world.send("GET", "/healthz")).status == 200


async def test_metrics_count_requests_and_addresses(world: World) -> None:
    await world.post(address=A)
    await world.post(address=A, secret=OTHER_SECRET)
    await world.sweep()
    text = (await world.send("GET", "/metrics")).body
    assert 'berth_api_requests_total{method="POST",route="/v2/address",status="200"} 1.0' in text
    assert 'berth_api_refusals_total{reason="NoMatch"} 1.0' in text
    assert 'berth_zone_addresses_used{family="ipv4",zone="inet"} 1.0' in text
    assert 'berth_zone_entries{family="ipv4",state="active",zone="inet"} 1.0' in text


async def test_v203_events_show_the_request_with_its_secrets_masked(start: Start) -> None:
    """V-203"""
    events: list[dict[str, Any]] = []
    async with start(Options(journal=EventLog(events.append))) as world:
        await world.post(address=A, new_secret=None)
        await world.post(address=A, secret=OTHER_SECRET)
        await world.release_cluster(token="wrong")
    http = [one["event"] for one in events if one["kind"] == "http"]
    assert [(one["message"], one["status"], one.get("error")) for one in http] == [
        ("http request", 200, None),
        ("http request", 404, None),
        ("request error", 404, "NoMatch"),
        ("http request", 401, None),
        ("request error", 401, "Unauthorized"),
    ]
    assert http[0]["body"]["secret"] == "*********"
    assert {"status", "method", "path", "ip", "response_time", "response_time_ms", "user_agent"} <= set(
        http[0]
    )
    assert [one["event"]["message"] for one in events if one["kind"] == "app"] == ["address refused"]
    assert SECRET not in str(events)
    assert OTHER_SECRET not in str(events)


@pytest.mark.parametrize("raw", [b'{"secret": "SuperSecret",', b"SuperSecret", b'{"SECRET": "SuperSecret"}'])
async def test_v205_a_body_that_does_not_parse_is_nowhere_to_be_seen(
    start: Start, raw: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """V-205"""
    events: list[dict[str, Any]] = []
    async with start(Options(journal=EventLog(events.append))) as world:
        await world.send("POST", "/v2/address", raw)
    assert events
    assert SECRET not in str(events)
    assert SECRET not in "".join(capfd.readouterr())


def test_only_listed_keys_of_a_body_are_shown() -> None:
    body = request_body(Secret="a", NEW_SECRET="b", other={"secret": "c"}, address={"deep": "d"})
    assert shown(body) == {
        "zone": "inet",
        "ip_family": "ipv4",
        "address": "?",
        "service": body["service"],
        "secret": "*********",
        "Secret": "*********",
        "NEW_SECRET": "*********",
    }
    assert shown([1]) is None


async def test_v206_everything_is_there_after_a_restart(start: Start) -> None:
    """V-206"""
    async with start() as world:
        await world.post("x", address=A)
        await world.post("y", address="83.118.168.11")
        await world.delete("y", address="83.118.168.11", retention=5)
        before = await world.entries("83.118.168.11")
    async with start() as world:
        assert await world.entries("83.118.168.11") == before
        assert (await world.post("x", address=A, secret=OTHER_SECRET)).status == 404
        assert (await world.post("x")).address == A
        assert (await world.post("new")).address == "83.118.168.0/32"


async def test_two_replicas_see_each_others_work(start: Start, database: str) -> None:
    async with start() as one, start() as other:
        got = [(await world.post(f"s{number}")).address for number, world in enumerate([one, other] * 5)]
        assert got == [f"83.118.168.{number}/32" for number in range(10)]
        await one.delete("s0", address="83.118.168.0")
        await one.sweep()
        assert (await other.post("next")).address == "83.118.168.0/32"


async def test_a_body_beyond_the_limit_is_413_in_either_form(start: Start) -> None:
    async with start(Options(limits=ApiLimits(body_bytes=1000))) as world:
        big = request_body(service="s" * 2000)
        assert (await world.send("POST", "/v2/address", big)).status == 413

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(30):
                yield b" " * 100

        async with world.session.post(world.url + "/v2/address", data=parts()) as response:
            assert response.status == 413


async def test_a_body_that_comes_too_slowly_is_408(start: Start) -> None:
    async with start(Options(limits=ApiLimits(body_seconds=0.2))) as world:
        port = int(world.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /v2/address HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        line = await asyncio.wait_for(reader.readline(), 60)
        assert b"408" in line
        writer.close()


async def test_an_answer_that_takes_too_long_is_503(start: Start) -> None:
    """Time for the body is not time for the answer. Here a transaction of ours holds up all others."""
    bounds = ApiLimits(body_seconds=3600, request_seconds=0.2)
    async with start(Options(limits=bounds)) as world, world.ledger.engine.transaction() as tx:
        await tx.lock(None)
        async with asyncio.timeout(60):
            reply = await world.post()
        assert (reply.status, reply.body["reason"]) == (503, "StoreDown")


async def test_requests_beyond_the_rate_are_429(start: Start) -> None:
    seconds = Seconds()
    async with start(Options(limits=ApiLimits(rate_per_second=1), seconds=seconds)) as world:
        statuses = [(await world.post()).status for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        assert (await world.send("POST", "/v2/batch", {"calls": []})).status == 429
        seconds.now += 1
        assert [(await world.post()).status for _ in range(2)] == [200, 429]


async def test_guessing_costs_a_pause_for_that_address_only(start: Start) -> None:
    seconds = Seconds()
    async with start(Options(limits=ApiLimits(wrong_secrets=5), seconds=seconds)) as world:
        await world.post(address=A)
        statuses = [(await world.post(address=A, secret=f"guess{n:04}")).status for n in range(7)]
        assert statuses == [404] * 5 + [429] * 2
        assert (await world.post(address=A)).status == 429
        assert (await world.post("y", address="83.118.168.11")).status == 200
        seconds.now += 1
        assert (await world.post(address=A)).status == 200


async def test_a_clusters_quota_holds_per_zone(start: Start) -> None:
    async with start(Options(rules={"quota": 2})) as world:
        statuses = [(await world.post(f"s{number}")).status for number in range(3)]
        assert statuses == [200, 200, 403]
        assert (await world.post("s0")).status == 200
        assert (await world.post("other", cluster="c2")).status == 200


async def test_services_on_one_address_are_one_of_the_quota(start: Start) -> None:
    async with start(Options(rules={"quota": 2})) as world:
        statuses = [(await world.post(f"s{number}", address=A)).status for number in range(3)]
        assert statuses == [200, 200, 200]
        assert [(await world.post(name)).status for name in ("t", "u")] == [200, 403]


async def test_a_retired_prefix_keeps_its_holders(start: Start) -> None:
    """Shrinking a zone never takes an address from its holder."""
    async with start() as world:
        await world.post("x", address=A)
        await world.post("y", ip_family="ipv6")
        zones = parse_zones(
            "zones: [{name: inet, ipv4: [83.118.169.0/24]}, {name: other, ipv4: [192.0.2.0/24]}]", ""
        )
        await world.ledger.configure(zones.pools)
        world.api.config.zones = zones
        assert (await world.post("x")).address == A
        assert (await world.post("y", ip_family="ipv6")).status == 200
        assert (await world.post("z", ip_family="ipv6")).message.startswith("no prefixes found")
        assert (await world.post("z")).address == "83.118.169.0/32"
        assert (await world.delete("x", address=A)).status == 200
        await world.sweep()
        assert (await world.post("x", address=A)).status == 400


async def test_a_retired_zone_keeps_its_holders(start: Start) -> None:
    async with start() as world:
        await world.post("x", zone="hnet-private")
        zones = parse_zones("zones: [{name: inet, ipv4: [10.0.0.0/24]}]", "")
        await world.ledger.configure(zones.pools)
        world.api.config.zones = zones
        assert (await world.post("x", zone="hnet-private")).address == "10.0.0.0/32"
        assert (await world.post("y", zone="hnet-private")).message.startswith("invalid zone")
        # The prefix moved to another zone: what is held there is not given out again.
        assert (await world.post("y")).address == "10.0.0.1/32"
        assert (await world.delete("x", zone="hnet-private", address="10.0.0.0")).status == 200
        await world.sweep()
        assert (await world.post("z")).address == "10.0.0.0/32"
