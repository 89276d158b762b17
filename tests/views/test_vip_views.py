"""What the commands show of IPGroups, IP objects and the Services that hold them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio
from tests.support.cluster import make_namespace
from tests.support.operator import admin, built, crds_of, install
from tests.support.vip import World

from berth.devcluster import DevCluster
from berth.dialects.vip import kinds
from berth.errors import NotFound
from berth.views import vip
from berth.views.explain import explain

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
        await made.ip("198.51.100.4", "gsm", "web", kinds.MAPPING_LABEL)
        await client.create(kinds.IP, built(kinds.IP, "198.51.100.5"))
        yield made
        for last in (1, 2, 4, 5):
            with suppress(NotFound):
                await client.delete(kinds.IP, f"198.51.100.{last}")
        await client.delete(kinds.IPGROUP, GROUP[0])
        await client.delete(kinds.SERVICE, "web", made.namespace)


async def test_a_group_shows_how_full_it_is(world: World) -> None:
    (row,) = (row for row in await vip.pools(world.client) if row.name == GROUP[0])
    assert (row.total, row.used, row.free, row.state) == (7, 4, 3, "")


async def test_a_lease_row_names_the_owner(world: World) -> None:
    rows = {row.address: row for row in await vip.leases(world.client)}
    assert rows["198.51.100.1"].holder == f"{world.namespace}/web"
    assert rows["198.51.100.1"].pool == GROUP[0]


async def test_adoption_tells_which_addresses_have_lost_their_owner(world: World) -> None:
    found = {row.what: row.problem for row in await vip.findings(world.client)}
    assert found[f"IPGroup {GROUP[0]}"] == found["IP 198.51.100.1"] == ""
    assert f"Service {world.namespace}/gone, is gone" in found["IP 198.51.100.2"]
    assert f"VirtualIP {world.namespace}/web, is gone" in found["IP 198.51.100.4"]
    assert found["IP 198.51.100.5"] == ""  # somebody's reservation, which stays one


async def test_explain_asks_whether_an_operator_runs_where_nothing_was_answered(world: World) -> None:
    found = await explain(world.client, "service/web", world.namespace)
    assert "is the operator running" in found.answer
    assert GROUP[0] in [row.name for row in found.pools]


async def test_explain_tells_what_a_virtualip_has_or_waits_for(world: World) -> None:
    await world.vip("old", "web")
    for status, answer in (
        ({"state": "Error", "message": "no mapping"}, "waits: Error, no mapping"),
        ({"state": "Valid", "message": "", "ip": "198.51.100.3"}, "has 198.51.100.3"),
    ):
        await world.client.patch(
            kinds.VIRTUAL_IP, "old", {"status": status}, world.namespace, subresource="status"
        )
        assert (await explain(world.client, "virtualip/old", world.namespace)).answer == answer
    await world.client.delete(kinds.VIRTUAL_IP, "old", world.namespace)
