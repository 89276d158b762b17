"""V-178: the NetBox mirror through its outbox, against a process that answers as NetBox does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from tests.support.central import Options, World, request_body
from tests.support.eventually import eventually
from tests.support.started import Neighbour, api_process, neighbour

from berth.central.integrations import for_good
from berth.central.integrations.event_log import EventLog
from berth.central.integrations.netbox import NetboxClient, NetboxMirror
from berth.central.integrations.netbox_diff import compare, repair
from berth.central.integrations.netbox_zones import our_uids, zones_text
from berth.central.settings import Netbox
from berth.central.zones import parse_zones
from berth.store import outbox

Start = Callable[..., AbstractAsyncContextManager[World]]
A = "83.118.168.10/32"


@pytest.fixture
def netbox(tmp_path: Path) -> Iterator[Neighbour]:
    with neighbour("netbox", tmp_path / "netbox") as one:
        yield one


@asynccontextmanager
async def mirrored(
    start: Start, netbox: Neighbour, tmp_path: Path
) -> AsyncIterator[tuple[World, NetboxMirror, NetboxClient]]:
    (tmp_path / "token").write_text("t")
    settings = Netbox(netbox.url, tmp_path / "token", tag="vitistack")
    async with start(Options(rules={"mirror": True})) as world, aiohttp.ClientSession() as session:
        mirror = NetboxMirror(settings, world.ledger.engine, world.api.metrics, "test")
        yield world, mirror, NetboxClient(settings, session)


async def prefixes(client: NetboxClient) -> list[dict[str, object]]:
    return [one for one in await client.pages("/api/ipam/prefixes/") if "status" not in one]


async def test_an_address_is_pushed_once_and_taken_away_when_freed(
    start: Start, netbox: Neighbour, tmp_path: Path
) -> None:
    async with mirrored(start, netbox, tmp_path) as (world, mirror, client):
        await world.post(address=A)
        await world.post("y", address=A)
        assert await mirror.deliver(client) == 1
        (pushed,) = await prefixes(client)
        assert pushed["prefix"] == A
        assert pushed["vrf"] == {"id": 7}
        assert pushed["tags"] == [3]
        assert isinstance(pushed["custom_fields"], dict)
        assert pushed["custom_fields"]["k8s_zone"] == "inet"
        assert pushed["custom_fields"]["infra"] == "prod"
        for name in ("ingress_inet", "y"):
            await world.delete(name, address=A)
        await world.sweep()
        assert await mirror.deliver(client) == 1
        assert await prefixes(client) == []


async def test_v178_a_prefix_that_is_gone_already_counts_as_done(
    start: Start, netbox: Neighbour, tmp_path: Path
) -> None:
    """V-178"""
    async with mirrored(start, netbox, tmp_path) as (world, mirror, client):
        await world.post(address=A)
        await mirror.deliver(client)
        await client.call("DELETE", "/api/ipam/prefixes/1/")
        await world.delete(address=A)
        await world.sweep()
        assert await world.stored() == []
        assert await mirror.deliver(client) == 1
        assert await outbox.length(world.ledger.engine) == 0


async def test_only_what_carries_our_uuid_is_deleted(start: Start, netbox: Neighbour, tmp_path: Path) -> None:
    async with mirrored(start, netbox, tmp_path) as (world, mirror, client):
        foreign = {"prefix": A, "custom_fields": {"k8s_uuid": "theirs"}}
        await client.call("POST", "/api/ipam/prefixes/", foreign)
        await world.post(address=A)
        await world.delete(address=A)
        await world.sweep()
        while await mirror.deliver(client):
            pass
        assert [one["custom_fields"] for one in await prefixes(client)] == [{"k8s_uuid": "theirs"}]


async def test_a_netbox_that_refuses_keeps_nobody_waiting_and_gets_it_later(
    start: Start, netbox: Neighbour, tmp_path: Path
) -> None:
    netbox.say("mode", "refuse")
    async with mirrored(start, netbox, tmp_path) as (world, mirror, client):
        assert (await world.post(address=A)).status == 200
        assert await mirror.deliver(client) == 0
        assert await outbox.length(world.ledger.engine) == 1
        netbox.say("mode", "")
        assert await mirror.deliver(client) == 0, "it waits a moment before the next try"
        world.advance(seconds=2)
        assert await mirror.deliver(client) == 1
        assert len(await prefixes(client)) == 1


async def test_answers_of_another_shape_are_a_failed_try_and_no_more(
    start: Start, netbox: Neighbour, tmp_path: Path
) -> None:
    netbox.say("mode", "odd")
    async with mirrored(start, netbox, tmp_path) as (world, mirror, client):
        await world.post(address=A)
        assert await mirror.deliver(client) == 0
        netbox.say("mode", "")
        await client.call("POST", "/api/ipam/prefixes/", {"prefix": A, "custom_fields": None})
        world.advance(seconds=2)
        assert await mirror.deliver(client) == 1
        assert not (await compare(client, world.ledger.engine)).absent


async def test_work_for_a_neighbour_that_fails_begins_again() -> None:
    tries: list[int] = []

    async def work() -> None:
        tries.append(1)
        if len(tries) == 3:
            raise asyncio.CancelledError
        raise AttributeError("nobody thought of this")

    with pytest.raises(asyncio.CancelledError):
        await for_good(work, EventLog(), pause_seconds=0)
    assert len(tries) == 3


async def test_what_differs_is_told_and_what_is_missing_is_pushed_again(
    start: Start, netbox: Neighbour, tmp_path: Path
) -> None:
    async with mirrored(start, netbox, tmp_path) as (world, mirror, client):
        engine = world.ledger.engine
        for name, address in (("a", A), ("b", "83.118.168.11"), ("c", "83.118.168.12")):
            await world.post(name, address=address)
            await mirror.deliver(client)
        assert not await compare(client, engine)
        await client.call("DELETE", "/api/ipam/prefixes/1/")
        await client.call("DELETE", "/api/ipam/prefixes/2/")
        for address, uid in (("83.118.168.11/32", "theirs"), ("83.118.168.99/32", "lost")):
            fields = {"k8s_uuid": uid, "k8s_zone": "inet"}
            await client.call("POST", "/api/ipam/prefixes/", {"prefix": address, "custom_fields": fields})
        found = await compare(client, engine)
        assert [row.address for row in found.absent] == ["83.118.168.10"]
        assert [row.address for row in found.foreign] == ["83.118.168.11"]
        assert found.unknown == ["83.118.168.99"]
        await repair(engine, found.absent)
        assert await mirror.deliver(client) == 1
        assert (await compare(client, engine)).absent == []


async def test_the_server_mirrors_by_itself(netbox: Neighbour, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    flags = ("--netbox-url", netbox.url, "--netbox-token-file", str(tmp_path / "token"))
    with api_process(tmp_path, *flags, "--sweep-seconds", "0.1") as api:
        async with aiohttp.ClientSession() as session:
            client = NetboxClient(Netbox(netbox.url, tmp_path / "token"), session)

            async def mirrored_are(count: int) -> bool:
                return len(await prefixes(client)) == count

            for method, path, count in (("POST", "/v2/address", 1), ("DELETE", "/v2/service", 0)):
                async with session.request(method, api.url + path, json=request_body(address=A)) as response:
                    assert response.status == 200
                await eventually(lambda: mirrored_are(count), 60)  # noqa: B023
        assert api.stop() == 0


async def test_zones_come_from_its_containers_without_what_others_have_there(
    start: Start, netbox: Neighbour, tmp_path: Path
) -> None:
    """All pages are read; what is ours, or in another VRF, is not in the way of anybody."""
    async with mirrored(start, netbox, tmp_path) as (world, mirror, client):
        await world.post(address=A)
        await mirror.deliver(client)
        for prefix, more in (
            ("83.118.168.64/26", {"vrf": 7}),
            ("83.118.169.1/32", {"vrf": 7, "custom_fields": {"k8s_uuid": "theirs"}}),
            ("83.118.170.0/24", {"vrf": 8}),
        ):
            await client.call("POST", "/api/ipam/prefixes/", {"prefix": prefix, **more})
        for address, vrf in (("83.118.168.0/22", 7), ("2a05:1234::7/64", 7), ("83.118.168.2/22", None)):
            await client.call("POST", "/api/ipam/ip-addresses/", {"address": address, "vrf": vrf})
        text = await zones_text(client, await our_uids(world.ledger.engine))
        zones = parse_zones(text, "the file")
        assert yaml.safe_load(text)["zones"] == [
            {
                "name": "inet",
                "ipv4": ["83.118.168.0/22"],
                "ipv6": ["2a05:1234::/64"],
                "exclude": ["83.118.168.64/26", "83.118.169.1/32", "83.118.168.0", "2a05:1234::7"],
            }
        ]
        await world.ledger.configure(zones.pools)
        world.api.config.zones = zones
        assert (await world.post()).address == A
        assert (await world.post("new")).address == "83.118.168.1/32"
        assert (await world.post("pinned", address="83.118.168.64")).status == 400
