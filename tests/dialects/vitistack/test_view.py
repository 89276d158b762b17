"""What the commands show of Services that have their address from the IPAM-API, as upstream leaves them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.cluster import make_namespace
from tests.support.operator import admin, built
from tests.support.settings import settings_of
from tests.support.vitistack import SYSTEM, Api, service

from berth.devcluster import DevCluster
from berth.dialects.explain import DEFAULTS, EVENTS, explain
from berth.dialects.view import Finding
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack import view as vitistack
from berth.errors import AlreadyExists, NotFound, UserError
from berth.kube.client import Client
from berth.settings import Settings

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
FIRST, SECOND = "83.118.168.7", "83.118.168.8"


class World:
    """A namespace with Services that nobody serves: no operator runs here."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._made: list[str] = []

    async def service(
        self, name: str, addresses: str = "", spec: Mapping[str, str] | None = None, **more: str
    ) -> None:
        words = {"zone": "inet", "addresses": addresses, "allow-local-shared-ip": f"key-of-{name}"}
        words |= {key.replace("_", "-"): value for key, value in more.items()}
        kept = {key: value for key, value in words.items() if value}
        await self.client.create(
            kinds.SERVICE, service(name, self.namespace, annotations=kept, **(spec or {}))
        )
        self._made.append(name)

    async def problem(self, name: str, settings: Settings = DEFAULTS) -> str:
        found = await vitistack.findings(self.client, settings)
        (one,) = (row for row in found if row.what == f"Service {self.namespace}/{name}")
        return one.problem

    async def warn(self, name: str, reason: str, message: str) -> None:
        """An Event as the operator writes it."""
        about = (await self.client.get(kinds.SERVICE, name, self.namespace))["metadata"]
        event = built(EVENTS, f"about-{name}", namespace=self.namespace)
        regarding = {"kind": "Service", "namespace": self.namespace, "name": name, "uid": about["uid"]}
        told = {"type": "Warning", "reason": reason, "message": message}
        await self.client.create(EVENTS, {**event, "involvedObject": regarding, **told}, self.namespace)

    async def clear(self) -> None:
        for name in self._made:
            with suppress(NotFound):
                await self.client.delete(kinds.SERVICE, name, self.namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster) -> AsyncIterator[World]:
    async with admin(cluster) as client:
        made = World(client, await make_namespace(cluster))
        secret = {**built(kinds.SECRET, kinds.DEFAULT_SECRET), "stringData": {"secret": "of-the-cluster"}}
        with suppress(AlreadyExists):
            await client.create(kinds.NAMESPACE, built(kinds.NAMESPACE, SYSTEM))
        with suppress(AlreadyExists):
            await client.create(kinds.SECRET, secret, SYSTEM)
        yield made
        await made.clear()
        with suppress(NotFound):
            await client.delete(kinds.SECRET, kinds.DEFAULT_SECRET, SYSTEM)


async def test_a_lease_row_names_address_service_and_zone(world: World) -> None:
    await world.service("dual", f"{FIRST}/32,2a05:1234::7/128")
    rows = [row for row in await vitistack.leases(world.client) if world.namespace in row.holder]
    assert [(row.address, row.pool) for row in rows] == [
        (f"{FIRST}/32", "inet"),
        ("2a05:1234::7/128", "inet"),
    ]
    assert {row.holder for row in rows} == {f"Service {world.namespace}/dual"}


async def test_a_zone_shows_what_this_cluster_holds_of_it(world: World) -> None:
    await world.service("one", FIRST)
    await world.service("two", SECOND)
    await world.service("sharing", f"{SECOND}/32")
    rows = {row.name: row for row in await vitistack.pools(world.client)}
    assert (rows["inet/ipv4"].used, rows["inet/ipv4"].total) == (2, 0)
    assert "--api-url" in rows["inet/ipv4"].state


async def test_with_the_apis_address_a_zone_shows_how_full_it_is(world: World, tmp_path: Path) -> None:
    api = Api(tmp_path)
    told = settings_of(DEFAULTS, api_url=api.url)
    api.start()
    try:
        rows = {row.name: row for row in await vitistack.pools(world.client, told)}
    finally:
        api.stop()
    assert (rows["inet/ipv4"].total, rows["inet/ipv4"].free) == (1024, 1024)
    assert rows["inet/ipv6"].total == 2**64
    with pytest.raises(UserError, match="does not tell how full its zones are: connection refused"):
        await vitistack.pools(world.client, told)


async def test_explain_tells_given_from_waiting_and_served(world: World) -> None:
    await world.service("waits")
    await world.service("given", f"{FIRST}/32")
    waits = await explain(world.client, "service/waits", world.namespace)
    assert waits.answer == "waits: the IPAM-API has given it no address of zone inet yet"
    await world.warn("waits", "ApiDown", "the IPAM-API cannot be reached")
    warned = await explain(world.client, "service/waits", world.namespace)
    assert warned.answer == "waits: ApiDown, the IPAM-API cannot be reached"
    given = await explain(world.client, "service/given", world.namespace)
    assert given.answer.startswith(f"was given {FIRST}/32 of zone inet; MetalLB")
    assert [row.name for row in given.pools] == ["inet/ipv4"]
    ingress = {"status": {"loadBalancer": {"ingress": [{"ip": FIRST}]}}}
    await world.client.patch(kinds.SERVICE, "given", ingress, world.namespace, subresource="status")
    served = await explain(world.client, "service/given", world.namespace)
    assert served.answer == f"has {FIRST}/32 of zone inet"


async def test_adoption_takes_over_what_has_an_address_and_a_secret(world: World) -> None:
    await world.service("fine", FIRST)
    found = await vitistack.findings(world.client)
    assert Finding("vitistack", f"Service {world.namespace}/fine", "") in found


async def test_adoption_says_what_is_wrong_before_anything_is_started(world: World) -> None:
    await world.service("first", FIRST)
    await world.service("second", FIRST)
    await world.service("nonsense", "10.0.0.256")
    await world.service("forever", SECOND, retention_period_days="soon")
    await world.service("locked", "83.118.168.9", secret="lost")
    await world.service("classy", "83.118.168.10", {"loadBalancerClass": "example.org/other"})
    assert await world.problem("first") == ""
    assert "another key for sharing" in await world.problem("second")
    assert "10.0.0.256" in await world.problem("nonsense")
    assert "retention" in await world.problem("forever")
    assert f"Secret {world.namespace}/lost is missing" in await world.problem("locked")
    assert "--vitistack-classes" in await world.problem("classy")


async def test_adoption_is_told_what_the_operator_is_told(world: World) -> None:
    await world.service("classy", FIRST, {"loadBalancerClass": "example.org/other"})
    await world.service("plain", SECOND)
    told = settings_of(DEFAULTS, vitistack_classes=("example.org/other",))
    assert await world.problem("classy", told) == ""
    assert "without a class" in await world.problem("plain", told)
    elsewhere = settings_of(DEFAULTS, vitistack_namespace="another")
    assert "Secret another/default is missing" in await world.problem("plain", elsewhere)
    left = settings_of(DEFAULTS, vitistack_excluded=(world.namespace,))
    assert "its namespace is left alone" in await world.problem("plain", left)
    only = await vitistack.findings(world.client, settings_of(DEFAULTS, namespace="default"))
    assert not [row for row in only if world.namespace in row.what]


async def test_the_default_zone_is_the_operators(world: World) -> None:
    await world.service("plain", FIRST, zone="")
    told = settings_of(DEFAULTS, vitistack_zone="hnet-public")
    (row,) = await vitistack.leases(world.client, settings_of(told, namespace=world.namespace))
    assert row.pool == "hnet-public"
    answer = (await explain(world.client, "svc/plain", world.namespace, told)).answer
    assert "of zone hnet-public" in answer


async def test_services_that_share_one_address_by_key_are_taken_over(world: World) -> None:
    await world.service("one", FIRST, allow_local_shared_ip="ours")
    await world.service("two", f"{FIRST}/32", allow_local_shared_ip="ours")
    assert [await world.problem(name) for name in ("one", "two")] == ["", ""]
