"""What the commands show of IPGroups, IP objects and the Services that hold them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio
from tests.support.cluster import make_namespace
from tests.support.operator import admin, built, crds_of, install
from tests.support.settings import settings_of
from tests.support.vip import World

from berth.devcluster import DevCluster
from berth.dialects.explain import DEFAULTS, explain
from berth.dialects.vip import kinds
from berth.dialects.vip import view as vip
from berth.errors import NotFound
from berth.settings import Settings

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
GROUP = ("198.51.100.0-29", "198.51.100.0/29", ("198.51.100.0",))


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster) -> AsyncIterator[World]:
    """One group, one Service with its IP object, one whose owner is gone, one that never had one; a Service
    where a VirtualIP should be. No operator runs."""
    async with admin(cluster) as client:
        await install(client, crds_of("vip"))
        made = World(client, await make_namespace(cluster))
        await made.group(*GROUP)
        await made.service("web")
        await made.ip("198.51.100.1", GROUP[0], "web")
        await made.ip("198.51.100.2", GROUP[0], "gone")
        await made.mapping("gsm", "198.51.100.0/29")
        await made.ip("198.51.100.4", "gsm", "web", kinds.MAPPING_LABEL)
        await client.create(kinds.IP, built(kinds.IP, "198.51.100.5"))
        yield made
        for last in (1, 2, 4, 5):
            with suppress(NotFound):
                await client.delete(kinds.IP, f"198.51.100.{last}")
        await client.delete(kinds.IPGROUP, GROUP[0])
        await client.delete(kinds.MAPPING, "gsm")
        for service in (await client.list(kinds.SERVICE, made.namespace)).items:
            await client.delete(kinds.SERVICE, service["metadata"]["name"], made.namespace)


async def problems(world: World, settings: Settings = DEFAULTS) -> dict[str, str]:
    """What is said about each object, by its kind and name."""
    found = await vip.findings(world.client, settings)
    return {row.what.replace(f"{world.namespace}/", ""): row.problem for row in found}


async def test_a_group_shows_how_full_it_is(world: World) -> None:
    (row,) = (row for row in await vip.pools(world.client) if row.name == GROUP[0])
    assert (row.kind, row.total, row.used, row.free, row.state) == ("IPGroup", 7, 4, 3, "")


async def test_a_mapping_is_a_pool_too(world: World) -> None:
    (row,) = (row for row in await vip.pools(world.client) if row.name == "gsm")
    assert (row.kind, row.total, row.used, row.free, row.state) == ("GroupSegmentMapping", 8, 4, 4, "")


async def test_a_lease_row_names_the_owner(world: World) -> None:
    rows = {row.address: row for row in await vip.leases(world.client)}
    assert rows["198.51.100.1"].holder == f"Service {world.namespace}/web"
    assert rows["198.51.100.1"].pool == GROUP[0]
    assert rows["198.51.100.5"].holder == "(nobody)"


async def test_leases_of_one_namespace_are_those_of_its_holders(world: World) -> None:
    here, elsewhere = (settings_of(DEFAULTS, namespace=name) for name in (world.namespace, "default"))
    assert {row.address for row in await vip.leases(world.client, here)} == {
        f"198.51.100.{last}" for last in (1, 2, 4)
    }
    assert await vip.leases(world.client, elsewhere) == []


async def test_adoption_tells_which_addresses_have_lost_their_owner(world: World) -> None:
    found = {row.what: row.problem for row in await vip.findings(world.client)}
    assert found[f"IPGroup {GROUP[0]}"] == found["IP 198.51.100.1"] == ""
    assert f"Service {world.namespace}/gone, is gone" in found["IP 198.51.100.2"]
    assert f"VirtualIP {world.namespace}/web, is gone" in found["IP 198.51.100.4"]
    assert found["IP 198.51.100.5"] == ""  # somebody's reservation, which stays one


async def test_adoption_tells_which_services_show_what_is_not_theirs(world: World) -> None:
    for name, address in (("bare", "198.51.100.3"), ("copy", "198.51.100.1"), ("other", "192.0.2.1")):
        await world.service(name)
        await world.show(name, address)
    await world.show("web", "198.51.100.1")
    found = await problems(world)
    assert found["Service web (198.51.100.1)"] == ""
    assert "without an IP object" in found["Service bare (198.51.100.3)"]
    owner = f"Service {world.namespace}/web"
    assert found["Service copy (198.51.100.1)"] == f"shows an address whose IP object is {owner}'s"
    assert not [what for what in found if "other" in what], "another load balancer's"
    await world.hold("bare")
    assert (await problems(world))["Service bare (198.51.100.3)"] == "", "its IP object is made again"
    await world.client.patch(kinds.SERVICE, "bare", {"metadata": {"finalizers": None}}, world.namespace)


async def test_adoption_follows_the_classes_the_operator_will_have(world: World) -> None:
    await world.service("classy", loadBalancerClass="x/y")
    await world.ip("198.51.100.6", GROUP[0], "classy")
    try:
        assert "x/y is served only with --vip-classes" in (await problems(world))["IP 198.51.100.6"]
        told = settings_of(DEFAULTS, vip_classes=("x/y",))
        assert (await problems(world, told))["IP 198.51.100.6"] == ""
    finally:
        await world.client.delete(kinds.IP, "198.51.100.6")


async def test_explain_asks_whether_an_operator_runs_where_nothing_was_answered(world: World) -> None:
    found = await explain(world.client, "service/web", world.namespace)
    assert "is the operator running" in found.answer
    assert GROUP[0] in [row.name for row in found.pools]
    assert {row.kind for row in found.pools} == {"IPGroup"}


async def test_explain_knows_the_classes_it_is_told(world: World) -> None:
    await world.service("classy", loadBalancerClass="x/y")
    told = settings_of(DEFAULTS, vip_classes=("x/y",))
    unknown = await explain(world.client, "service/classy", world.namespace)
    known = await explain(world.client, "service/classy", world.namespace, told)
    assert "x/y is served where --vip-classes" in unknown.answer
    assert "is the operator running" in known.answer
    without = await explain(
        world.client, "service/web", world.namespace, settings_of(told, vitistack_classes=())
    )
    assert "a Service without a loadBalancerClass is served where" in without.answer


async def test_explain_tells_what_a_virtualip_has_or_waits_for(world: World) -> None:
    await world.vip("old", "web")
    for status, answer in (
        ({"state": "Error", "message": "no mapping"}, "waits: Error, no mapping"),
        ({"state": "Valid", "message": "", "ip": "198.51.100.3"}, "has 198.51.100.3"),
    ):
        await world.client.patch(
            kinds.VIRTUAL_IP, "old", {"status": status}, world.namespace, subresource="status"
        )
        told = await explain(world.client, "virtualip/old", world.namespace)
        assert told.answer == answer
        assert [row.name for row in told.pools if row.kind == "GroupSegmentMapping"] == ["gsm"]
        assert len(told.pools) == 1
    assert "VirtualIP old (198.51.100.3)" in await problems(world)
    await world.client.delete(kinds.VIRTUAL_IP, "old", world.namespace)
