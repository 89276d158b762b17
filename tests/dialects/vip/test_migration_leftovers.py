"""Migrations that an operator, ours or upstream's, left half done: found at the start, and finished.

No operator runs while the scene is set; each test starts its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.operator import eventually, gone, running
from tests.support.vip import World, without_operator

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.dialects.vip.clone import new_clone
from berth.dialects.vip.migrate import NOT_CONVERTED, State
from berth.kube import meta

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
ADDRESS = "5.5.5.1"
CLONE = "vip-keepalived-clone"


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster) -> AsyncIterator[World]:
    async with without_operator(cluster) as world:
        yield world


async def _half_done(world: World, state: str, *, handed_over: bool, locked: bool) -> None:
    """Everything as it is in that state: both finalizers, the clone, the IP object old or new."""
    await world.mapping("gsm-a", "5.5.5.0/24")
    await world.group("new", "5.5.5.0/24")
    lock = {kinds.MIGRATING: "vip"} if locked else None
    service = await world.service("web", "ClusterIP", annotations=lock)
    vip = await world.vip(
        "vip",
        "web",
        annotations={kinds.MIGRATE: ""},
        finalizers=[kinds.IP_FINALIZER, kinds.CLONE_FINALIZER],
    )
    status: dict[str, Any] = {"ip": ADDRESS, "service": "web", "gsm": "gsm-a", "state": state}
    await world.client.patch(
        kinds.VIRTUAL_IP, "vip", {"status": status}, world.namespace, subresource="status"
    )
    await world.client.create(kinds.SERVICE, new_clone(vip, service, ADDRESS), world.namespace)
    if handed_over:
        await world.ip(ADDRESS, "new", "web")
    else:
        await world.ip(ADDRESS, "gsm-a", "vip", kinds.MAPPING_LABEL)


async def _all_is_well(world: World) -> None:
    await world.addresses("web", ADDRESS)
    await world.eventually_owned({ADDRESS: f"{world.namespace}/web"})
    ip = (await world.ips())[ADDRESS]
    assert meta.labels(ip) == {"ipgroup": "new"}
    await gone(world.client, kinds.SERVICE, CLONE, world.namespace)

    async def unlocked() -> bool:
        service = await world.get("web")
        return kinds.MIGRATING not in meta.annotations(service) and "loadBalancerIP" not in service["spec"]

    await eventually(unlocked)


@pytest.mark.parametrize(
    ("state", "handed_over", "locked"),
    [
        pytest.param("Error", False, False, id="upstream's Error, nothing done"),
        pytest.param("Error", True, False, id="upstream's Error after reassociating"),
        pytest.param("Migrating", False, False, id="the one state of July 2022"),
        pytest.param(State.REASSOCIATING, True, True, id="ours, killed after reassociating"),
        pytest.param(State.CLEANING, True, True, id="ours, killed in cleaning"),
        pytest.param(State.CONVERTING, True, True, id="ours, killed in converting"),
    ],
)
async def test_a_half_done_migration_is_finished(
    cluster: DevCluster, world: World, state: str, handed_over: bool, locked: bool
) -> None:
    """P-080, and section 3.2: it resumes where its postconditions do not hold."""
    await _half_done(world, state, handed_over=handed_over, locked=locked)
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.vip_state("vip", State.MIGRATED)
        await _all_is_well(world)


async def test_a_service_converted_by_upstream_before_its_error_is_no_obstacle(
    cluster: DevCluster, world: World
) -> None:
    await _half_done(world, "Error", handed_over=True, locked=False)
    await world.edit("web", {"type": "LoadBalancer", "loadBalancerIP": ADDRESS})
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.vip_state("vip", State.MIGRATED)
        await _all_is_well(world)


@pytest.mark.parametrize("state", [State.CLEANING, State.CONVERTING, State.ASSIGNING])
async def test_a_virtual_ip_deleted_on_the_way_leaves_the_address_to_the_service(
    cluster: DevCluster, world: World, state: State
) -> None:
    """P-086."""
    await _half_done(world, state, handed_over=True, locked=True)
    if state == State.ASSIGNING:
        await world.edit("web", {"type": "LoadBalancer", "loadBalancerIP": ADDRESS})
    await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
    async with running(cluster, crds=(), dialects=("vip",)):
        await gone(world.client, kinds.VIRTUAL_IP, "vip", world.namespace)
        await _all_is_well(world)


@pytest.mark.parametrize("state", [State.PREPARING, State.REASSOCIATING])
async def test_a_virtual_ip_deleted_before_goes_with_its_address(
    cluster: DevCluster, world: World, state: State
) -> None:
    await _half_done(world, state, handed_over=False, locked=True)
    await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
    async with running(cluster, crds=(), dialects=("vip",)):
        await gone(world.client, kinds.VIRTUAL_IP, "vip", world.namespace)
        await gone(world.client, kinds.SERVICE, CLONE, world.namespace)
        await world.eventually_owned({})
        service = await world.get("web")
        assert service["spec"]["type"] == "ClusterIP"
        assert kinds.MIGRATING not in meta.annotations(service)


async def test_a_service_deleted_while_its_migration_is_held_keeps_its_address_for_the_next_one(
    cluster: DevCluster, world: World
) -> None:
    """I1: the clone serves the address all the time, so nobody else may have it."""
    await _half_done(world, State.CONVERTING, handed_over=True, locked=True)
    await world.delete("web")
    await world.service("web", "ClusterIP", clusterIP="None", annotations={kinds.MIGRATING: "vip"})
    async with running(cluster, crds=(), dialects=("vip",)):
        await world.vip_state("vip", State.CONVERTING, NOT_CONVERTED)
        await world.service("other", loadBalancerIP=ADDRESS)
        await world.pending("other", "failed to allocate specific ip: the requested ip is not available")
        await world.delete("web")
        await world.vip_state("vip", State.CONVERTING, "could not get the service to be exposed")
        await world.service("web", "ClusterIP")
        await world.vip_state("vip", State.MIGRATED)
        await _all_is_well(world)
        assert await world.ingress("other") == ()


@pytest.mark.parametrize("state", [State.CONVERTING, State.ASSIGNING])
async def test_an_address_that_became_another_s_is_not_given_to_the_service(
    cluster: DevCluster, world: World, state: State
) -> None:
    """I1: the IP object decides, not the state that was reached."""
    await _half_done(world, state, handed_over=False, locked=True)
    about = {"metadata": {"annotations": {kinds.OWNER: f"{world.namespace}/other"}}}
    await world.client.patch(kinds.IP, ADDRESS, about)
    if state == State.ASSIGNING:
        await world.edit("web", {"type": "LoadBalancer", "loadBalancerIP": ADDRESS})
    async with running(cluster, crds=(), dialects=("vip",)):
        held = "could not get IP object" if state == State.CONVERTING else ""
        await world.vip_state("vip", State.REASSOCIATING, held)
        assert await world.ingress("web") == ()
        assert await world.owned() == {ADDRESS: f"{world.namespace}/other"}
