"""Updating live Services."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from tests.support import metallb
from tests.support.operator import eventually
from tests.support.vitistack import VALUE, World, address_of, of, service

from berth.central.client import Access, AddressCall, ApiClient
from berth.dialects.vitistack import kinds
from berth.kube import meta
from berth.leasing.holders import Identity
from berth.secret import Secret

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]

NO_MATCH = "no matching address found with the provided secret, zone and address"


async def settled(world: World, name: str = "my-service", **wishes: Any) -> tuple[dict[str, Any], str]:
    made = await world.create(name, **wishes)
    return made, address_of(made)


async def expires(world: World, address: str, name: str = "my-service") -> None:
    async def is_expiring() -> bool:
        entry = world.api.entries(address).get(name)
        return entry is None or not entry.active

    assert await eventually(is_expiring, 60)


async def test_a_label_or_port_change_makes_no_call(world: World) -> None:
    """V-050"""
    _, address = await settled(world, annotations={"retention-period-days": "1"})
    await world.rested()
    before = await world.calls()
    await world.patch({"metadata": {"labels": {"a": "b"}}})
    now = await world.patch({"spec": {"ports": [{"port": 81, "protocol": "TCP", "targetPort": 100}]}})
    assert address_of(now) == address
    assert await world.calls() == before


async def test_terms_are_sent_before_the_update_returns(world: World) -> None:
    """V-052, V-053"""
    _, address = await settled(world)
    await world.annotate(deny_external_cleanup="true")
    assert world.api.entries(address)["my-service"].deny
    await world.annotate(retention_period_days="7")
    assert world.api.entries(address)["my-service"].retention == 7
    await world.annotate(retention_period_days=None, deny_external_cleanup=None)
    entry = world.api.entries(address)["my-service"]
    assert (entry.retention, entry.deny) == (0, False)


@pytest.mark.parametrize("days", ["45", "abc", "-1"])
async def test_a_bad_retention_is_refused(world: World, days: str) -> None:
    """V-054"""
    made, _ = await settled(world)
    await world.not_annotated(retention_period_days=days)
    assert meta.annotations(await world.get()) == meta.annotations(made)


@pytest.mark.parametrize("days", [0, 3])
async def test_another_address_replaces_the_first(world: World, days: int) -> None:
    """V-055: and the first one's retention counts."""
    _, first = await settled(world, annotations={"retention-period-days": str(days)})
    second = world.free_address()
    now = await world.annotate(addresses=second)
    assert meta.annotations(now)[kinds.METALLB_ADDRESSES] == second
    assert world.api.entries(second)["my-service"].active
    await expires(world, first)
    entry = world.api.entries(first).get("my-service")
    if days:
        assert entry is not None
        assert entry.expires_at is not None
        assert round((entry.expires_at / 1000 - time.time()) / (24 * 3600)) == days

    async def is_moved() -> bool:
        return not await world.pooled(first) and await world.pooled(f"{second}/32")

    assert await eventually(is_moved, 60)


async def test_an_address_of_another_secret_changes_nothing(world: World) -> None:
    """V-056"""
    await world.secret()
    _, theirs = await settled(world, "owner", annotations={"secret": "my-secret"})
    _, mine = await settled(world)
    message = await world.not_annotated(addresses=theirs)
    why = f"Could not register address: {NO_MATCH}"
    assert message == f"failed to validate IP for address-family ipv4 for Service my-service: {why}"
    assert world.api.entries(mine)["my-service"].active
    assert list(world.api.entries(theirs)) == ["owner"]


@pytest.mark.parametrize("value", ["", None])
async def test_emptied_addresses_come_back(world: World, value: str | None) -> None:
    """V-057: and nothing is asked for."""
    _, address = await settled(world, annotations={"retention-period-days": "1"})
    await world.rested()
    before = await world.calls()
    assert address_of(await world.annotate(addresses=value)) == address
    assert await world.calls() == before


async def test_one_of_two_addresses_comes_back(world: World) -> None:
    """Contract 2.3: `dual` stays, one address is taken out of the list."""
    _, both = await settled(world, annotations={"ip-family": "dual"})
    now = await world.annotate(addresses=both.split(",")[1])
    assert address_of(now) == both


async def test_a_zone_cannot_change_under_an_address(world: World) -> None:
    """V-058"""
    await settled(world)
    before = world.history()
    message = await world.not_annotated(zone="hnet-private")
    assert message == "change of zone is prohibited while keeping old addresses"
    assert world.history() == before


async def test_a_zone_changes_with_its_address(world: World) -> None:
    """V-059"""
    _, first = await settled(world)
    now = await world.annotate(zone="hnet-private", addresses="")
    address = address_of(now)
    assert address.startswith("10.")
    assert meta.annotations(now)[kinds.METALLB_POOL] == "hnet-private"
    assert await world.pooled(address, "hnet-private")
    await expires(world, first)

    async def has_left() -> bool:
        return not await world.pooled(first)

    assert await eventually(has_left, 60)


async def test_ipv4_becomes_dual_and_back(world: World) -> None:
    """V-060, V-061"""
    _, four = await settled(world)
    now = await world.annotate(ip_family="dual")
    six = address_of(now).split(",")[0]
    assert address_of(now).split(",")[1] == four
    assert now["spec"]["ipFamilyPolicy"] == "RequireDualStack"
    back = await world.annotate(ip_family="ipv4")
    assert address_of(back) == four
    assert back["spec"]["ipFamilyPolicy"] == "SingleStack"
    await expires(world, six)

    async def has_left() -> bool:
        return not await world.pooled(six)

    assert await eventually(has_left, 60)


async def test_ipv4_cannot_become_ipv6(world: World) -> None:
    """Contract 2.3: the first family of a Service is immutable."""
    await settled(world)
    message = await world.not_annotated(ip_family="ipv6", addresses="")
    assert "first family of a Service cannot be changed" in message


async def test_a_secret_is_replaced(world: World) -> None:
    """V-062, and back to the default one: by the controller, a moment after the update."""
    _, address = await settled(world)
    await world.secret()
    default = await world.default_secret()
    assert await world.opens(address, default)

    async def is_opened_by(value: str, other: str) -> bool:
        return await world.opens(address, value) and not await world.opens(address, other)

    await world.annotate(secret="my-secret")
    assert await eventually(lambda: is_opened_by(VALUE, default), 60)

    async def is_told() -> bool:
        return "SecretReplaced" in await world.events()

    assert await eventually(is_told, 60)
    await world.annotate(secret="default")
    assert await eventually(lambda: is_opened_by(default, VALUE), 60)
    assert world.api.entries(address)["my-service"].active
    await world.delete()
    await expires(world, address)


async def test_a_shared_address_keeps_its_secret(world: World) -> None:
    """V-063"""
    await world.secret()
    first, address = await settled(world)
    key = of(first, "allow-local-shared-ip")
    wishes = {"addresses": address, "allow-local-shared-ip": key}
    await settled(world, "other", annotations=wishes, port=443)
    message = await world.not_annotated("other", secret="my-secret")
    assert message == (
        "failed to update secret for address-family ipv4 for Service other: "
        "Could not register address: multiple services registered. unable to change secret"
    )
    await world.annotate("other", retention_period_days="3")
    assert world.api.entries(address)["other"].retention == 3


async def test_a_half_replaced_secret_is_turned_back(world: World) -> None:
    """V-064: the second address of a dual Service is shared and refuses; the first goes back."""
    await world.secret()
    first, both = await settled(world, annotations={"ip-family": "dual"})
    four = both.split(",")[1]
    key = of(first, "allow-local-shared-ip")
    await settled(world, "other", annotations={"addresses": four, "allow-local-shared-ip": key}, port=443)
    assert "multiple services" in await world.not_annotated(secret="my-secret")
    for address in both.split(","):
        assert await world.opens(address, await world.default_secret())
        assert not await world.opens(address, VALUE)
    await world.annotate(retention_period_days="2")
    for address in both.split(","):
        assert world.api.entries(address)["my-service"].retention == 2
    await world.annotate("my-service", retention_period_days="0")
    await world.delete()
    for address in both.split(","):
        await expires(world, address)


async def test_a_secret_that_another_cluster_shares_is_not_replaced(world: World) -> None:
    """Only the IPAM-API knows of that one: the update is stored, an Event says why the address keeps its
    secret, and everything else of the Service works on.
    """
    await world.secret()
    _, address = await settled(world)
    default = await world.default_secret()
    elsewhere = Identity("there", "namespace-there", "cluster-there")
    ask = AddressCall(elsewhere, "inet", "ipv4", Secret(default), address)
    async with ApiClient(Access(world.api.url, seconds=30)) as api:
        await api.register(ask)
        await world.annotate(secret="my-secret")

        async def is_told() -> bool:
            return "SecretRefused" in await world.events()

        assert await eventually(is_told, 60)
        assert await world.opens(address, default)
        assert not await world.opens(address, VALUE)
        (record,) = [one["data"] for one in await world.records() if one["data"]["address"] in address]
        assert (record["secret"], record.get("kept"), record.get("replaced")) == ("default", None, None)
        await world.annotate(retention_period_days="2")
        assert world.api.entries(address)["my-service"].retention == 2
        await world.annotate(secret="default", retention_period_days="0")
        await api.release(ask)
    await world.delete()
    await expires(world, address)


async def test_a_secret_that_goes_after_the_update_leaves_the_old_one(world: World) -> None:
    """It is there when the update is admitted, and gone when the controller comes to read it."""
    _, address = await settled(world)
    await world.secret()
    body = {"metadata": {"annotations": {kinds.SECRET_NAME: "nowhere"}}}
    await world.client.patch(kinds.SERVICE, "my-service", body, world.namespace, subresource="status")

    async def is_told() -> bool:
        return "SecretRefused" in await world.events()

    assert await eventually(is_told, 60)
    assert await world.opens(address, await world.default_secret())
    await world.annotate(secret="my-secret")

    async def is_replaced() -> bool:
        return await world.opens(address, VALUE)

    assert await eventually(is_replaced, 60)


async def test_a_secret_that_is_not_there_changes_nothing(world: World) -> None:
    """V-065"""
    await settled(world)
    before = world.history()
    assert "failed to get custom secret" in await world.not_annotated(secret="nowhere")
    assert world.history() == before


async def test_a_secret_edited_in_place_keeps_working(world: World) -> None:
    """V-066: updates and the release work, and the user is told."""
    await world.secret()
    _, address = await settled(world, annotations={"secret": "my-secret"})
    data = {"secret": base64.b64encode(b"another-password").decode()}
    await world.client.patch(kinds.SECRET, "my-secret", {"data": data}, world.namespace)
    await world.patch({"metadata": {"labels": {"a": "b"}}})

    async def is_told() -> bool:
        return "SecretReplaced" in await world.events()

    assert await eventually(is_told, 60)
    await world.annotate(retention_period_days="1")
    assert world.api.entries(address)["my-service"].retention == 1
    await world.annotate(retention_period_days="0")
    await world.delete()
    await expires(world, address)


async def test_a_replace_without_annotations_changes_nothing_but_terms(world: World) -> None:
    """V-067, V-068"""
    await world.secret()
    wishes = {"secret": "my-secret", "zone": "inet", "retention-period-days": "3"}
    made, address = await settled(world, annotations=wishes)
    body = service("my-service", world.namespace)
    body["spec"]["clusterIP"] = made["spec"]["clusterIP"]
    now = await world.client.replace(kinds.SERVICE, body)
    assert address_of(now) == address
    for word in ("secret", "zone", "allow-local-shared-ip", "ip-family"):
        assert of(now, word) == of(made, word)
    assert world.api.entries(address)["my-service"].retention == 0


async def test_metallbs_annotations_are_set_back(world: World) -> None:
    """V-069"""
    _, address = await settled(world)
    now = await world.patch({"metadata": {"annotations": {kinds.METALLB_ADDRESSES: "192.0.2.9"}}})
    assert meta.annotations(now)[kinds.METALLB_ADDRESSES] == address.partition("/")[0]


async def test_spelling_and_order_are_no_change(world: World) -> None:
    """V-070, V-071"""
    _, both = await settled(world, annotations={"ip-family": "dual", "retention-period-days": "1"})
    six, four = both.split(",")
    await world.rested()
    before = await world.calls()
    await world.annotate(addresses=f"{four.partition('/')[0]} , {six.partition('/')[0]}")
    await world.annotate(addresses=f"{four},{six}")
    assert await world.calls() == before


async def test_an_update_in_dry_run_has_no_effect(world: World) -> None:
    """V-073"""
    await settled(world)
    before = world.history()
    body = {"metadata": {"annotations": {kinds.RETENTION: "9"}}}
    await world.client.patch(kinds.SERVICE, "my-service", body, world.namespace, dry_run=True)
    assert world.history() == before


async def test_without_metallb_a_label_change_passes(world: World) -> None:
    """V-074, V-099: and so does a deletion."""
    _, address = await settled(world)
    await metallb.stop_pod(world.client)
    try:
        await world.patch({"metadata": {"labels": {"a": "b"}}})
        await world.delete()
        await expires(world, address)
    finally:
        await metallb.start_pod(world.client)


async def test_a_service_being_deleted_is_not_held_up(world: World) -> None:
    """V-076, V-101: with the API down a finalizer can be taken off, and the address stays until then."""
    _, address = await settled(world, finalizers=["example.com/hold"])
    await world.delete()
    await world.patch({"metadata": {"labels": {"still": "here"}}})
    await world.passed()
    assert world.api.entries(address)["my-service"].active
    world.api.stop()
    try:
        await world.patch({"metadata": {"finalizers": None}})
    finally:
        world.api.start()
    await expires(world, address)
