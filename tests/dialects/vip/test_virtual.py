"""Section E of the contract: VirtualIPs that are not migrated. Without webhooks, which refuse new ones."""

from __future__ import annotations

import pytest
from tests.support.operator import eventually, gone
from tests.support.vip import World

from berth.dialects.vip import kinds
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
CLONE = "vip-keepalived-clone"


async def _scene(world: World, kind: str = "ClusterIP") -> None:
    await world.mapping("gsm-a", "5.5.5.0/24", ["5.5.5.0"])
    await world.service("web", kind, labels={"tier": "front"})


async def test_a_virtual_ip_gets_an_address_and_a_clone(world: World) -> None:
    """P-060."""
    await _scene(world)
    await world.vip("vip", "web")
    vip = await world.vip_state("vip", "Valid", "successfully allocated an IP address")
    assert vip["status"] == {
        "ip": "5.5.5.1",
        "gsm": "gsm-a",
        "keepalivedGroup": "gsm-a-keepalived",
        "service": "web",
        "clonedService": CLONE,
        "state": "Valid",
        "message": "successfully allocated an IP address",
    }
    assert set(meta.finalizers(vip)) == {kinds.IP_FINALIZER, kinds.CLONE_FINALIZER}
    ip = await world.client.get(kinds.IP, "5.5.5.1")
    assert meta.labels(ip) == {"gsm": "gsm-a"}
    assert meta.annotations(ip)[kinds.OWNER] == f"{world.namespace}/vip"
    clone = await world.get(CLONE)
    assert clone["spec"]["type"] == "ClusterIP"
    assert clone["spec"]["externalIPs"] == ["5.5.5.1"]
    assert clone["spec"]["selector"] == {"app": "web"}
    assert meta.labels(clone) == {"tier": "front"}
    assert [owner["uid"] for owner in meta.owners(clone)] == [meta.uid(vip)]
    assert meta.finalizers(clone) == []


async def test_a_missing_service_is_waited_for(world: World) -> None:
    """P-061."""
    await world.mapping("gsm-a", "5.5.5.0/24")
    await world.vip("vip", "web")
    await world.vip_state("vip", "Error", 'could not get the service to be exposed: services "web" not found')
    await world.service("web", "ClusterIP")
    await world.vip_state("vip", "Valid")


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        pytest.param("5.5.5.0", "the requested ip is not available", id="P-062"),
        pytest.param("9.9.9.9", "GroupSegmentMapping not found for the requested ip", id="P-063"),
        pytest.param("5.5.5", "the requested ip could not be parsed", id="no address"),
    ],
)
async def test_a_wish_that_cannot_be_had_is_an_error(world: World, wish: str, text: str) -> None:
    await _scene(world)
    await world.vip("vip", "web", wish)
    vip = await world.vip_state("vip", "Error")
    assert vip["status"]["message"] == f"could not allocate an IP: failed to allocate specific ip: {text}"


async def test_a_virtual_ip_without_a_mapping_waits_for_one(world: World) -> None:
    await world.service("web", "ClusterIP")
    await world.vip("vip", "web")
    vip = await world.vip_state("vip", "Error")
    text = "could not allocate an IP: no IP could be allocated"
    assert vip["status"]["message"] == text
    told = await world.event("vip", text, "FamilyAbsent")
    assert told["message"] == f"{text} (there is no GroupSegmentMapping)"
    await world.mapping("gsm-a", "5.5.5.0/32")
    await world.vip_state("vip", "Valid")
    await world.vip("more", "web")
    told = await world.event("more", text, "PoolExhausted")
    assert told["message"] == f"{text} (tried gsm-a: all 1 addresses are in use)"


async def test_a_virtual_ip_whose_address_is_anothers_says_whose(world: World) -> None:
    await _scene(world)
    await world.vip("other", "web", "5.5.5.5")
    await world.vip_state("other", "Valid")
    await world.vip("vip", "web")
    await world.vip_state("vip", "Valid")
    status = {"status": {"ip": "5.5.5.5"}}
    await world.client.patch(kinds.VIRTUAL_IP, "vip", status, world.namespace, subresource="status")
    text = "could not allocate an IP: failed to allocate specific ip: the requested ip is not available"
    await world.vip_state("vip", "Error", text)
    told = await world.event("vip", text, "PinTaken")
    assert f"5.5.5.5 is held by VirtualIP/{world.namespace}/other" in told["message"]


async def test_a_clone_has_no_node_ports_and_follows_its_original(world: World) -> None:
    """P-064, P-065."""
    await _scene(world, "NodePort")
    await world.vip("vip", "web")
    await world.vip_state("vip", "Valid")
    assert all("nodePort" not in port for port in (await world.get(CLONE))["spec"]["ports"])
    ports = [{"name": "more", "port": 443, "targetPort": 8443, "protocol": "TCP"}]
    await world.edit("web", {"ports": ports, "selector": {"app": "other", "tier": "x"}})

    async def followed() -> bool:
        spec = (await world.get(CLONE))["spec"]
        selector = {"app": "other", "tier": "x"}
        return bool(spec["ports"] == ports and spec["selector"] == selector)

    await eventually(followed)
    assert (await world.get(CLONE))["spec"]["externalIPs"] == ["5.5.5.1"]


async def test_a_clone_follows_to_another_service(world: World) -> None:
    """P-058."""
    await _scene(world)
    await world.service("other", "ClusterIP", port=81)
    await world.vip("vip", "web")
    await world.vip_state("vip", "Valid")
    await world.client.patch(kinds.VIRTUAL_IP, "vip", {"spec": {"service": "other"}}, world.namespace)

    async def followed() -> bool:
        vip = await world.vip_state("vip", "Valid")
        clone = await world.get(CLONE)
        return bool(vip["status"]["service"] == "other" and clone["spec"]["selector"] == {"app": "other"})

    await eventually(followed)


async def test_two_virtual_ips_of_one_service_have_two_clones(world: World) -> None:
    """P-066."""
    await _scene(world)
    for name in ("one", "two"):
        await world.vip(name, "web")
    found = [await world.vip_state(name, "Valid") for name in ("one", "two")]
    clones = [await world.get(f"{name}{kinds.CLONE_SUFFIX}") for name in ("one", "two")]
    addresses = [vip["status"]["ip"] for vip in found]
    assert sorted(addresses) == ["5.5.5.1", "5.5.5.2"]
    assert [clone["spec"]["externalIPs"] for clone in clones] == [[address] for address in addresses]


async def test_deletion_takes_clone_and_ip_object_along(world: World) -> None:
    """P-067, P-059."""
    await _scene(world)
    original = await world.get("web")
    await world.vip("vip", "web")
    await world.vip_state("vip", "Valid")
    await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
    await gone(world.client, kinds.VIRTUAL_IP, "vip", world.namespace)
    await gone(world.client, kinds.SERVICE, CLONE, world.namespace)
    await world.eventually_owned({})
    assert await world.get("web") == original


async def test_a_clone_or_ip_object_deleted_by_hand_is_made_again(world: World) -> None:
    await _scene(world)
    await world.vip("vip", "web")
    await world.vip_state("vip", "Valid")
    await world.client.delete(kinds.SERVICE, CLONE, world.namespace)
    await world.client.delete(kinds.IP, "5.5.5.1")
    await eventually(lambda: world.get(CLONE))
    await world.eventually_owned({"5.5.5.1": f"{world.namespace}/vip"})


async def test_a_foreign_service_of_the_clones_name_is_left_alone(world: World) -> None:
    await _scene(world)
    foreign = await world.service(CLONE, "ClusterIP")
    await world.vip("vip", "web")
    await world.vip_state("vip", "Error", "could not expose the service")
    await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
    await gone(world.client, kinds.VIRTUAL_IP, "vip", world.namespace)
    assert await world.get(CLONE) == foreign
