"""V-130 to V-159: registering and updating over HTTP, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from tests.support.central import OTHER_SECRET, SECRET, Options, Reply, World, request_body

Start = Callable[..., AbstractAsyncContextManager[World]]
UPDATED = "IP-address updated!"
REGISTERED = "Address registered successfully"
NO_MATCH = "Could not register address: no matching address found with the provided secret, zone and address"
OUTSIDE = "Could not register address: the requested address is not valid for the provided zone"
SMALL = "zones: [{name: inet, ipv4: [192.0.2.0/31, 198.51.100.0/31], exclude: [198.51.100.1]}]"


async def test_v130_the_first_gets_the_lowest_address_of_the_first_prefix(world: World) -> None:
    """V-130"""
    assert await world.post() == Reply(200, {"message": REGISTERED, "address": "83.118.168.0/32"})


async def test_v131_asking_again_gives_the_same_address(world: World) -> None:
    """V-131"""
    await world.post()
    assert await world.post() == Reply(200, {"message": UPDATED, "address": "83.118.168.0/32"})


async def test_v132_another_secret_means_another_address(world: World) -> None:
    """V-132"""
    await world.post()
    reply = await world.post(secret=OTHER_SECRET)
    assert (reply.message, reply.address) == (REGISTERED, "83.118.168.1/32")


async def test_v133_another_zone_means_another_address(world: World) -> None:
    """V-133"""
    await world.post()
    reply = await world.post(zone="hnet-private")
    assert (reply.message, reply.address) == (REGISTERED, "10.0.0.0/32")
    assert list(await world.entries("83.118.168.0")) == ["ingress_inet"]


async def test_v134_the_documents_address_can_be_had(world: World) -> None:
    """V-134"""
    reply = await world.post(address="83.118.168.10/32")
    assert (reply.status, reply.address) == (200, "83.118.168.10/32")


async def test_v135_who_knows_the_secret_joins(world: World) -> None:
    """V-135"""
    await world.post("x", address="83.118.168.10/32")
    reply = await world.post("y", address="83.118.168.10/32")
    assert reply == Reply(200, {"message": UPDATED, "address": "83.118.168.10/32"})
    assert sorted(await world.entries("83.118.168.10")) == ["x", "y"]


async def test_v136_an_update_replaces_the_entry(world: World) -> None:
    """V-136"""
    first = await world.post()
    await world.post(address=first.address, retention=7, deny=True)
    entries = await world.entries(first.address)
    assert [(entry.retention_days, entry.deny) for entry in entries.values()] == [(7, True)]


async def test_v137_a_wrong_secret_matches_nothing_and_changes_nothing(world: World) -> None:
    """V-137"""
    await world.post("x", address="83.118.168.10")
    reply = await world.post("y", address="83.118.168.10", secret=OTHER_SECRET)
    assert (reply.status, reply.message) == (404, NO_MATCH)
    assert list(await world.entries("83.118.168.10")) == ["x"]


async def test_v138_a_wrong_zone_matches_nothing(world: World) -> None:
    """V-138"""
    await world.post(address="83.118.168.10")
    reply = await world.post(address="83.118.168.10", zone="hnet-public")
    assert (reply.status, reply.message) == (404, NO_MATCH)


async def test_v139_an_address_outside_the_zone_is_refused(world: World) -> None:
    """V-139"""
    reply = await world.post(address="192.0.2.1")
    assert (reply.status, reply.message) == (400, OUTSIDE)
    assert await world.stored() == []


DOCUMENT_SAMPLE = (
    b'{"address": "83.118.168.10/32","ip_family": "ipv4","zone": "inet","secret": "SuperSecret",'
    b'"new_secret": "SuperSecret","service": {"service_name": "ingress_inet","namespace_id": "467579ae",'
    b'"cluster_id": "0f3c7805","retention_period_days": 0,"deny_external_cleanup": false},}'
)


@pytest.mark.parametrize(
    "raw", [b"{", DOCUMENT_SAMPLE, b"", b"[]", b"null", b'{"zone": 1}', b'{"service": []}', b"\xff"]
)
async def test_v140_what_is_no_json_object_is_refused(world: World, raw: bytes) -> None:
    """V-140"""
    reply = await world.send("POST", "/v2/address", raw)
    assert (reply.status, reply.message) == (400, "Could not parse incomming request")


@pytest.mark.parametrize("secret", ["s" * 7, "s" * 65, None, "", "å" * 7])
async def test_v141_a_secret_has_8_to_64_characters(world: World, secret: str | None) -> None:
    """V-141"""
    reply = await world.post(secret=secret)
    assert reply.status == 400
    assert "secret" in reply.message


@pytest.mark.parametrize("secret", ["s" * 8, "s" * 64, "å" * 64])
async def test_v141_both_ends_of_the_length_are_fine(world: World, secret: str) -> None:
    """V-141"""
    assert (await world.post(secret=secret)).status == 200


async def test_v142_the_family_is_ipv4_or_ipv6(world: World) -> None:
    """V-142"""
    dual = await world.post(ip_family="dual")
    assert (dual.status, dual.message) == (400, "invalid ip family, must be either 'ipv4' or 'ipv6'")
    absent = await world.post(ip_family=None)
    assert absent.status == 400
    assert "ip_family" in absent.message


async def test_v143_retention_is_at_most_30_days(world: World) -> None:
    """V-143"""
    reply = await world.post(retention=31)
    assert (reply.status, reply.message) == (400, "retention period cannot be more than 30 days")
    assert (await world.post(retention=30)).status == 200


async def test_v144_retention_is_not_negative(world: World) -> None:
    """V-144"""
    assert (await world.post(retention=-1)).status == 400


async def test_v145_an_unknown_zone_is_refused_with_the_known_ones(world: World) -> None:
    """V-145"""
    reply = await world.post(zone="mars")
    text = "invalid zone 'mars', must be one of: 'hnet-private', 'hnet-public', 'inet'"
    assert (reply.status, reply.message) == (400, text)


BAD_ADDRESSES = [
    "foo",
    "83.118.168.0/24",  # V-149
    "83.118.168.10/",
    "83.118.168.10/032",
    "083.118.168.10",
    "::ffff:83.118.168.10",
    "::ffff:83.118.168.10/128",
    "fe80::1%eth0",
    "83.118.168.10/32/32",
    " 83.118.168.10",
]


@pytest.mark.parametrize("text", BAD_ADDRESSES)
async def test_v146_what_is_no_host_address_is_refused(world: World, text: str) -> None:
    """V-146, V-149"""
    reply = await world.post(address=text)
    assert (reply.status, reply.message) == (400, f"invalid ip prefix: {text}")
    assert await world.stored() == []


async def test_v147_the_address_must_fit_the_family(world: World) -> None:
    """V-147"""
    reply = await world.post(address="2a05:1234::2")
    assert (reply.status, reply.message) == (400, "invalid ip familiy for the provided address")


async def test_v148_a_zone_may_lack_a_family(world: World) -> None:
    """V-148"""
    reply = await world.post(zone="hnet-private", ip_family="ipv6")
    text = "no prefixes found for zone hnet-private with IP family ipv6"
    assert (reply.status, reply.message) == (400, text)


async def test_v150_the_mask_may_be_left_out(world: World) -> None:
    """V-150"""
    reply = await world.post(address="83.118.168.10")
    assert reply.address == "83.118.168.10/32"


async def test_v151_an_ipv6_address_matches_in_any_spelling(world: World) -> None:
    """V-151"""
    first = await world.post(ip_family="ipv6", address="2a05:1234:0:0::00AB/128")
    assert first.address == "2a05:1234::ab/128"
    again = await world.post("y", ip_family="ipv6", address="2A05:1234::0:ab")
    assert (again.message, again.address) == (UPDATED, "2a05:1234::ab/128")
    assert (await world.delete(ip_family="ipv6", address="2a05:1234::00ab")).status == 200


@pytest.mark.parametrize("key", ["service_name", "namespace_id", "cluster_id"])
async def test_v152_each_name_is_required(world: World, key: str) -> None:
    """V-152"""
    body = request_body()
    del body["service"][key]
    reply = await world.send("POST", "/v2/address", body)
    assert reply.status == 400
    assert key in reply.message


async def test_v153_twenty_equal_requests_at_once_get_one_address(world: World) -> None:
    """V-153"""
    replies = await asyncio.gather(*(world.post() for _ in range(20)))
    assert {(reply.status, reply.address) for reply in replies} == {(200, "83.118.168.0/32")}
    assert len(await world.entries("83.118.168.0")) == 1
    assert await world.stored() == ["83.118.168.0"]


async def test_v154_twenty_services_at_once_all_join(world: World) -> None:
    """V-154"""
    await world.post("owner", address="83.118.168.10")
    replies = await asyncio.gather(
        *(world.post(f"s{number}", address="83.118.168.10") for number in range(20))
    )
    assert {reply.status for reply in replies} == {200}
    assert len(await world.entries("83.118.168.10")) == 21


async def test_v155_v156_prefixes_in_order_then_nothing_left(start: Start) -> None:
    """V-155, V-156"""
    async with start(Options(zones=SMALL)) as world:
        got = [(await world.post(f"s{number}")).address for number in range(3)]
        assert got == ["192.0.2.0/32", "192.0.2.1/32", "198.51.100.0/32"]
        full = await world.post("one-too-many")
        text = "Could not register address: no available prefix found for zone inet_v4"
        assert (full.status, full.message) == (503, text)


async def test_v157_what_the_sweep_freed_is_given_again(world: World) -> None:
    """V-157"""
    for name in ("a", "b", "c"):
        await world.post(name)
    await world.delete("a", address="83.118.168.0")
    await world.sweep()
    assert (await world.post("d")).address == "83.118.168.0/32"


@pytest.mark.parametrize("path", ["/", "/address", "/v2/address"])
async def test_v158_older_paths_work_too(world: World, path: str) -> None:
    """V-158"""
    reply = await world.send("POST", path, request_body())
    assert reply == Reply(200, {"message": REGISTERED, "address": "83.118.168.0/32"})


async def test_v159_an_excluded_address_is_never_given(start: Start) -> None:
    """V-159"""
    async with start(Options(zones=SMALL)) as world:
        reply = await world.post(address="198.51.100.1")
        assert (reply.status, reply.message) == (400, OUTSIDE)
        got = [(await world.post(f"s{number}")).address for number in range(4)]
        assert "198.51.100.1/32" not in got


async def test_unknown_keys_and_expires_at_are_ignored_and_null_is_absent(world: World) -> None:
    body = request_body(address=None, new_secret="", extra={"a": 1})
    body["service"]["expires_at"] = "2030-01-01T00:00:00Z"
    body["pending"] = None
    assert (await world.send("POST", "/v2/address", body)).status == 200
    assert (await world.entries("83.118.168.0"))["ingress_inet"].active


async def test_keys_are_case_sensitive(world: World) -> None:
    body = request_body()
    body["Secret"] = body.pop("secret")
    assert (await world.send("POST", "/v2/address", body)).status == 400


async def test_faults_are_told_in_the_contracts_order(world: World) -> None:
    """Secret and family before retention, retention before zone, zone before address."""
    everything: dict[str, Any] = {"secret": "short", "retention": 31, "zone": "mars", "address": "foo"}
    messages = []
    for repair in ({}, {"secret": SECRET}, {"retention": 0}, {"zone": "inet"}, {"address": "::1"}):
        everything |= repair
        messages.append((await world.post(**everything)).message)
    assert "secret" in messages[0]
    assert "30 days" in messages[1]
    assert messages[2].startswith("invalid zone")
    assert messages[3] == "invalid ip prefix: foo"
    assert messages[4] == "invalid ip familiy for the provided address"
