"""Section C of the contract: what is given back when, and what survives."""

from __future__ import annotations

import pytest
from tests.support.operator import eventually, gone
from tests.support.vip import G, World

from berth.dialects.vip import kinds
from berth.errors import NotFound
from berth.kube import meta
from berth.kube.client import PatchKind
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def test_deletion_gives_the_address_back(world: World) -> None:
    """P-037, P-038."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    await world.delete("web")
    assert await world.ips() == {}
    await world.served("next", "1.1.1.1")


async def test_another_type_gives_the_address_back(world: World) -> None:
    """P-039, P-040: the API server itself empties the status."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    await world.edit("web", {"type": "ClusterIP"})
    await world.eventually_owned({})

    async def remove_finalizer() -> bool:
        service = await world.get("web")
        return not meta.finalizers(service) and not service["status"]["loadBalancer"]

    await eventually(remove_finalizer)
    await world.edit("web", {"type": "LoadBalancer"})
    await world.addresses("web", "1.1.1.1")
    await world.eventually_owned({"1.1.1.1": f"{world.namespace}/web"})
    await world.edit("web", {"type": "NodePort"})
    await world.delete("web")


async def test_a_wiped_status_costs_no_second_address(world: World) -> None:
    """P-050."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    for _ in range(3):
        await world.wipe_status("web")
        await world.addresses("web", "1.1.1.1")
    await world.eventually_owned({"1.1.1.1": f"{world.namespace}/web"})


async def test_a_service_that_waits_goes_at_once(world: World) -> None:
    """P-044."""
    await world.service("web")
    await world.pending("web", "no IP could be allocated")
    await _goes_at_once(world, kinds.SERVICE, "web", world.namespace)


async def _goes_at_once(world: World, resource: Resource, name: str, namespace: str = "") -> None:
    await world.client.delete(resource, name, namespace)
    with pytest.raises(NotFound):
        await world.client.get(resource, name, namespace)


async def test_a_group_in_use_stays_until_its_addresses_are_free(world: World) -> None:
    """P-045."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    await eventually(lambda: _is_held(world, "1.1.1.0-24"))
    await world.client.delete(kinds.IPGROUP, "1.1.1.0-24")
    deleting = await world.group_condition("1.1.1.0-24", "False", "Deleting")
    assert "waiting for its addresses" in deleting["message"]
    await world.service("late")
    assert "1.1.1.0-24: being deleted" in await world.pending("late", "no IP could be allocated")
    assert await world.ingress("web") == ("1.1.1.1",)
    await world.delete("web")
    await world.eventually_owned({})
    await gone(world.client, kinds.IPGROUP, "1.1.1.0-24")


async def _is_held(world: World, group: str) -> bool:
    return meta.finalizers(await world.client.get(kinds.IPGROUP, group)) == [kinds.GROUP_FINALIZER]


async def test_services_keep_their_addresses_when_a_group_is_torn_away(world: World) -> None:
    """P-045: by force, as upstream lets it go."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    await eventually(lambda: _is_held(world, "1.1.1.0-24"))
    await world.client.delete(kinds.IPGROUP, "1.1.1.0-24")
    steps = [{"op": "remove", "path": "/metadata/finalizers"}]
    await world.client.patch(kinds.IPGROUP, "1.1.1.0-24", steps, kind=PatchKind.JSON)
    await gone(world.client, kinds.IPGROUP, "1.1.1.0-24")
    await world.wipe_status("web")
    await world.addresses("web", "1.1.1.1")
    await world.delete("web")
    await world.eventually_owned({})


async def test_an_unused_group_goes_at_once(world: World) -> None:
    await world.group(*G)
    await world.group_condition("1.1.1.0-24", "True", "Ready")
    await _goes_at_once(world, kinds.IPGROUP, "1.1.1.0-24")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"excludedIPs": ["1.1.1.0", "1.1.1.1", "1.1.1.255"]}, id="excluded"),
        pytest.param({"segment": "1.1.1.128/25"}, id="shrunk"),
        pytest.param({"segment": "1.2.1.0/24"}, id="moved"),
    ],
)
async def test_an_address_in_use_outlives_an_edit_of_its_group(
    world: World, change: dict[str, object]
) -> None:
    """P-046."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    await world.edit_group("1.1.1.0-24", change)

    async def told() -> bool:
        group = await world.client.get(kinds.IPGROUP, "1.1.1.0-24")
        ready = meta.condition(group, "Ready") or {}
        return group["status"]["addresses"]["outside"] == 1 and "released: 1.1.1.1" in ready["message"]

    await eventually(told)
    await world.wipe_status("web")
    await world.addresses("web", "1.1.1.1")
    await world.delete("web")
    assert await world.served("next") != ("1.1.1.1",)


async def test_an_address_of_another_implementation_is_left_alone(world: World) -> None:
    """P-049: no finalizer, no second address, and ours never collides with it."""
    await world.service("other", loadBalancerClass="x/y")
    await world.show("other", "1.1.1.1")
    await world.service("early")
    await world.show("early", "7.7.7.7")
    await world.group(*G)
    await world.served("web", "1.1.1.2")
    assert await world.ingress("early") == ("7.7.7.7",)
    for name in ("other", "early"):
        assert meta.finalizers(await world.get(name)) == []
        await _goes_at_once(world, kinds.SERVICE, name, world.namespace)


async def test_an_address_of_another_implementation_is_free_once_it_is_no_longer_shown(world: World) -> None:
    """P-049: while its Service is being deleted it may still be in use."""
    await world.group("one", "1.1.1.0/32")
    await world.service("other", loadBalancerClass="x/y")
    await world.show("other", "1.1.1.0")
    await world.service("web")
    await world.pending("web", "no IP could be allocated")
    await world.edit("other", {"type": "ClusterIP", "loadBalancerClass": None})
    await world.addresses("web", "1.1.1.0")

    await world.delete("web")
    await world.edit("other", {"type": "LoadBalancer", "loadBalancerClass": "x/y"})
    await world.show("other", "1.1.1.0")
    await world.hold("other", "example.org/hold")
    await world.client.delete(kinds.SERVICE, "other", world.namespace)
    await world.service("next")
    await world.pending("next", "no IP could be allocated")
    await world.client.patch(kinds.SERVICE, "other", {"metadata": {"finalizers": None}}, world.namespace)
    await world.addresses("next", "1.1.1.0")


async def test_an_ip_object_deleted_by_hand_is_made_again(world: World) -> None:
    """Upstream's hole 9: its address could go to a second Service."""
    await world.group("two", "1.1.1.0/31")
    await world.served("web", "1.1.1.0")
    await world.served("other", "1.1.1.1")
    await world.service("waits")
    await world.pending("waits", "no IP could be allocated")
    old = meta.uid(await world.client.get(kinds.IP, "1.1.1.0"))
    await world.client.delete(kinds.IP, "1.1.1.0")

    async def again() -> bool:
        return meta.uid(await world.client.get(kinds.IP, "1.1.1.0")) != old

    await eventually(again)
    ip = await world.client.get(kinds.IP, "1.1.1.0")
    assert meta.annotations(ip)[kinds.OWNER] == f"{world.namespace}/web"
    assert meta.labels(ip) == {"ipgroup": "two"}
    assert await world.ingress("web") == ("1.1.1.0",)
    assert await world.ingress("waits") == ()


async def test_an_address_is_kept_while_another_finalizer_keeps_the_service(world: World) -> None:
    await world.group("one", "1.1.1.0/32")
    await world.served("web", "1.1.1.0")
    await world.hold("web", kinds.SERVICE_FINALIZER, "example.org/hold")
    await world.client.delete(kinds.SERVICE, "web", world.namespace)
    await world.service("next")
    await world.pending("next", "no IP could be allocated")
    assert await world.owned() == {"1.1.1.0": f"{world.namespace}/web"}
    await world.hold("web")
    await world.addresses("next", "1.1.1.0")
