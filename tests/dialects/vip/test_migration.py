"""Section F of the contract: from a VirtualIP to a LoadBalancer Service with the same address."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import groupby
from typing import Any

import pytest
from tests.support.operator import eventually, gone
from tests.support.vip import World

from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import STAGES, State
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
CLONE = "vip-keepalived-clone"
ALREADY = "service is already of type LoadBalancer, change service type to proceed with migration"


async def _valid(world: World, ip: str = "", kind: str = "ClusterIP", name: str = "vip") -> str:
    """A Valid VirtualIP of Service web, and its address."""
    await world.vip(name, "web", ip)
    return str((await world.vip_state(name, "Valid"))["status"]["ip"])


async def _scene(world: World, ip: str = "", kind: str = "ClusterIP") -> str:
    await world.mapping("gsm-a", "5.5.5.0/24", ["5.5.5.0"])
    await world.service("web", kind)
    return await _valid(world, ip)


async def _annotate(world: World, name: str = "vip", value: str = "") -> None:
    change = {"metadata": {"annotations": {kinds.MIGRATE: value}}}
    await world.client.patch(kinds.VIRTUAL_IP, name, change, world.namespace)


async def _is_migrated(world: World, address: str, name: str = "vip") -> dict[str, Any]:
    """All that `Migrated` promises."""
    vip = await world.vip_state(name, "Migrated", "VirtualIP has been migrated")
    service = await world.get("web")
    assert service["spec"]["type"] == "LoadBalancer"
    assert await world.ingress("web") == (address,)
    assert kinds.MIGRATING not in meta.annotations(service)
    ip = await world.client.get(kinds.IP, address)
    assert meta.labels(ip) == {"ipgroup": "new"}
    assert meta.annotations(ip)[kinds.OWNER] == f"{world.namespace}/web"
    await gone(world.client, kinds.SERVICE, f"{name}{kinds.CLONE_SUFFIX}", world.namespace)
    assert meta.finalizers(vip) == []
    status = vip["status"]
    assert not any(status.get(key) for key in ("gsm", "keepalivedGroup", "clonedService"))
    assert (status["ip"], status["service"]) == (address, "web")

    async def held() -> bool:
        return meta.finalizers(await world.get("web")) == [kinds.SERVICE_FINALIZER]

    await eventually(held)
    return service


@pytest.mark.parametrize("value", ["", pytest.param("anything", id="P-085")])
async def test_a_virtual_ip_becomes_a_load_balancer(world: World, value: str) -> None:
    """P-068, P-071, P-072."""
    address = await _scene(world)
    await world.group("new", "5.5.5.0/24")
    await _annotate(world, value=value)
    service = await _is_migrated(world, address)
    assert "loadBalancerIP" not in service["spec"]


async def test_a_wanted_address_stays_wanted(world: World) -> None:
    """P-069."""
    await _scene(world, "5.5.5.9")
    await world.group("new", "5.5.5.0/24")
    await _annotate(world)
    service = await _is_migrated(world, "5.5.5.9")
    assert service["spec"]["loadBalancerIP"] == "5.5.5.9"


async def test_the_states_come_in_their_order_and_nothing_is_ever_unserved(world: World) -> None:
    """P-070: every write in the order of the store; the address is always somebody's to serve."""
    address = await _scene(world)
    await world.group("new", "5.5.5.0/24")
    vips, services = [await world.client.revision(kind) for kind in (kinds.VIRTUAL_IP, kinds.SERVICE)]
    await _annotate(world)
    await _is_migrated(world, address)
    states = [vip["status"]["state"] for vip in await _changes(world, kinds.VIRTUAL_IP, vips, _is_done)]
    assert [state for state, _ in groupby(states)] == [State.VALID, *STAGES, State.MIGRATED]

    ways = {CLONE: True, "web": False}
    for event in await _changes(world, kinds.SERVICE, services, _is_cloned_no_more):
        name = event["metadata"]["name"]
        gone_now = event.get("gone", False)
        shown = event["status"]["loadBalancer"].get("ingress") or []
        ways[name] = not gone_now and (name == CLONE or bool(shown))
        assert any(ways.values())


async def _changes(world: World, resource: Any, version: str, is_last: Any) -> list[dict[str, Any]]:
    found = []
    stream = world.client.watch(resource, world.namespace, resource_version=version, timeout_seconds=60)
    async with asyncio.timeout(60), aclosing(stream) as events:
        async for event in events:
            found.append({**event.object, "gone": event.type == "DELETED"})
            if is_last(found[-1]):
                return found
    raise AssertionError("the last change never came")


def _is_done(vip: dict[str, Any]) -> bool:
    return bool(vip["status"]["state"] == State.MIGRATED)


def _is_cloned_no_more(service: dict[str, Any]) -> bool:
    return bool(service["metadata"]["name"] == CLONE and service["gone"])


async def test_a_migrated_virtual_ip_can_be_deleted_without_harm(world: World) -> None:
    """P-073, P-074."""
    address = await _scene(world)
    await world.group("new", "5.5.5.0/24")
    await _annotate(world)
    await _is_migrated(world, address)
    await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
    await gone(world.client, kinds.VIRTUAL_IP, "vip", world.namespace)
    await world.served("next", "5.5.5.0")
    assert await world.ingress("web") == (address,)
    assert (await world.owned())[address] == f"{world.namespace}/web"
    await world.delete("web")
    await world.delete("next")
    await world.eventually_owned({})


async def test_a_service_that_is_a_load_balancer_already_is_waited_for(world: World) -> None:
    """P-075, P-076."""
    address = await _scene(world)
    await world.edit("web", {"type": "LoadBalancer"})
    await _annotate(world)
    await world.vip_state("vip", State.PREPARING, ALREADY)
    await world.group("new", "5.5.5.0/24", ["5.5.5.0"])
    await world.addresses("web", "5.5.5.2")  # it is served as what it is
    await world.vip_state("vip", State.PREPARING, ALREADY)
    await world.edit("web", {"type": "ClusterIP"})
    await _is_migrated(world, address)
    await world.eventually_owned({address: f"{world.namespace}/web"})


async def test_without_a_group_for_the_address_nothing_is_migrated(world: World) -> None:
    """P-077, P-078: the state upstream calls Migrated."""
    address = await _scene(world)
    await world.group("other", "6.6.6.0/24")
    await _annotate(world)
    text = "could not get IPGroup object of IP: IPGroup not found for the requested ip"
    await world.vip_state("vip", State.REASSOCIATING, text)
    assert (await world.get(CLONE))["spec"]["externalIPs"] == [address]
    await world.group("new", "5.5.5.0/24")
    await _is_migrated(world, address)


async def test_a_service_that_becomes_a_load_balancer_on_the_way_is_waited_for(world: World) -> None:
    """P-075 while the VirtualIP waits for its IPGroup: the clone serves on, and so the address stays its."""
    address = await _scene(world)
    await world.group("other", "6.6.6.0/24")
    await _annotate(world)
    await world.vip_state("vip", State.REASSOCIATING, "could not get IPGroup")
    await world.edit("web", {"type": "LoadBalancer"})
    await world.addresses("web", "6.6.6.0")
    await world.group("new", "5.5.5.0/24")
    await world.vip_state("vip", State.REASSOCIATING, ALREADY)
    assert (await world.owned())[address] == f"{world.namespace}/vip"
    assert (await world.get(CLONE))["spec"]["externalIPs"] == [address]
    await world.edit("web", {"type": "ClusterIP"})
    await _is_migrated(world, address)
    await world.eventually_owned({address: f"{world.namespace}/web"})


async def test_a_service_with_another_wish_cannot_be_converted_and_says_so(world: World) -> None:
    """As a LoadBalancer it would insist on two addresses and have none, while the clone serves the one."""
    address = await _scene(world)
    await world.group("new", "5.5.5.0/24")
    wish = {"metadata": {"annotations": {kinds.WANTED_ADDRESS: "5.5.5.99"}}}
    await world.client.patch(kinds.SERVICE, "web", wish, world.namespace)
    await _annotate(world)
    text = "could not change service type to LoadBalancer: failed to allocate specific ip"
    vip = await world.vip_state("vip", State.CONVERTING, text)
    assert "5.5.5.1 and 5.5.5.99" in vip["status"]["message"]
    assert (await world.get("web"))["spec"]["type"] == "ClusterIP"
    assert (await world.get(CLONE))["spec"]["externalIPs"] == [address]
    assert address in await world.owned()
    wish["metadata"]["annotations"][kinds.WANTED_ADDRESS] = ""
    await world.client.patch(kinds.SERVICE, "web", wish, world.namespace)
    await _is_migrated(world, address)


async def test_a_clone_deleted_by_hand_is_no_obstacle(world: World) -> None:
    """P-079."""
    address = await _scene(world)
    await _annotate(world)
    await world.vip_state("vip", State.REASSOCIATING, "could not get IPGroup")
    await world.client.delete(kinds.SERVICE, CLONE, world.namespace)
    await world.group("new", "5.5.5.0/24")
    await _is_migrated(world, address)


async def test_an_ip_object_deleted_by_hand_is_no_obstacle(world: World) -> None:
    address = await _scene(world)
    await _annotate(world)
    await world.vip_state("vip", State.REASSOCIATING, "could not get IPGroup")
    await world.client.delete(kinds.IP, address)
    await world.group("new", "5.5.5.0/24")
    await _is_migrated(world, address)


@pytest.mark.parametrize("_", range(3))
async def test_of_two_virtual_ips_of_one_service_one_is_migrated(world: World, _: int) -> None:
    """P-081: annotated at the same moment."""
    await world.mapping("gsm-a", "5.5.5.0/24")
    await world.service("web", "ClusterIP")
    addresses = {name: await _valid(world, name=name) for name in ("one", "two")}
    await world.group("new", "5.5.5.0/24")
    await asyncio.gather(*(_annotate(world, name) for name in addresses))

    async def first() -> str:
        vips = await world.client.list(kinds.VIRTUAL_IP, world.namespace)
        done = [vip["metadata"]["name"] for vip in vips.items if _is_done(vip)]
        return done[0] if done else ""

    winner = await eventually(first)
    loser = "two" if winner == "one" else "one"
    await _is_migrated(world, addresses[winner], winner)
    await world.vip_state(loser, State.PREPARING, ALREADY)
    assert (await world.get(f"{loser}{kinds.CLONE_SUFFIX}"))["spec"]["externalIPs"] == [addresses[loser]]
    assert (await world.owned())[addresses[loser]] == f"{world.namespace}/{loser}"


async def test_migrated_is_final(world: World) -> None:
    """P-082."""
    address = await _scene(world)
    await world.group("new", "5.5.5.0/24", ["5.5.5.0"])
    await _annotate(world)
    await _is_migrated(world, address)
    await world.delete("web")
    before = await world.vip_state("vip", State.MIGRATED)
    await world.client.patch(
        kinds.VIRTUAL_IP, "vip", {"metadata": {"labels": {"touched": "yes"}}}, world.namespace
    )
    await world.served("next", address)
    after = await world.vip_state("vip", State.MIGRATED)
    assert after["status"] == before["status"]


async def test_an_excluded_address_is_migrated(world: World) -> None:
    """P-083."""
    address = await _scene(world)
    await world.group("new", "5.5.5.0/24", [address])
    await _annotate(world)
    await _is_migrated(world, address)


async def test_node_ports_are_kept(world: World) -> None:
    """P-084."""
    address = await _scene(world, kind="NodePort")
    ports = (await world.get("web"))["spec"]["ports"]
    await world.group("new", "5.5.5.0/24")
    await _annotate(world)
    service = await _is_migrated(world, address)
    assert service["spec"]["ports"] == ports


async def test_a_headless_service_cannot_be_converted_and_says_so(world: World) -> None:
    await world.mapping("gsm-a", "5.5.5.0/24")
    await world.service("web", "ClusterIP", clusterIP="None")
    address = await _valid(world)
    await world.group("new", "5.5.5.0/24")
    await _annotate(world)
    await world.vip_state("vip", State.CONVERTING, "could not change service type to LoadBalancer: ")
    assert (await world.get(CLONE))["spec"]["externalIPs"] == [address]
    await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
    await gone(world.client, kinds.VIRTUAL_IP, "vip", world.namespace)
    await gone(world.client, kinds.SERVICE, CLONE, world.namespace)
    await world.eventually_owned({})
