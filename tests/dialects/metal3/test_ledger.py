"""What the ledger knows about twins: who was first, and how few looks it takes to find none."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.support.cluster import make_namespace
from tests.support.metal3 import CAPI_ADDRESS, address, capi_address
from tests.support.operator import admin, crds_of, install

from berth.control.cache import Cache
from berth.control.informers import Informer, WatchSpec
from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds
from berth.dialects.metal3.claim_api import made_for
from berth.dialects.metal3.ipaddressclaim import Capi
from berth.dialects.metal3.ipclaim import Native
from berth.dialects.metal3.leases import FEW, IPAddressLedger, Obstacle, Twins, born_at
from berth.errors import NotFound
from berth.kube.client import Client

Object = dict[str, Any]


def stored(revision: int = 7, writers: int = 1, **metadata: Any) -> Object:
    about: Object = {
        "managedFields": [{"manager": str(i)} for i in range(writers)],
        "resourceVersion": str(revision),
    }
    return capi_address("a-10-0-0-10", "10.0.0.10", "m", namespace="default", **about, **metadata)


def test_an_object_nobody_touched_says_when_it_was_made() -> None:
    """Else the order of two twins is unknown, and both go."""
    assert born_at(stored(7)) == 7
    assert born_at(stored(7, writers=2)) == 0
    assert born_at(stored(7, writers=0)) == 0
    assert born_at(stored(7, deletionTimestamp="2026-01-01T00:00:00Z")) == 0


@pytest.mark.parametrize(
    ("kind", "group", "maker"),
    [
        ("IPAddressClaim", "ipam.cluster.x-k8s.io/v1beta1", "u"),
        ("IPAddressClaim", "ipam.cluster.x-k8s.io/v1beta2", "u"),
        ("IPAddressClaim", "example.org/v1", None),
        ("IPPool", "ipam.metal3.io/v1alpha1", None),
    ],
)
def test_whom_an_object_was_made_for(kind: str, group: str, maker: str | None) -> None:
    """Its claim among the owners, in any version; an object made by hand has none."""
    owner = {"apiVersion": group, "kind": kind, "name": "m", "uid": "u"}
    assert made_for(Capi(), stored(ownerReferences=[owner])) == maker
    assert made_for(Capi(), stored()) is None


class Server:
    """Answers for at most one object, by list or by name, when it is let."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {obj["metadata"]["name"]: obj for obj in objects}
        self.lists = 0
        self.open = asyncio.Event()
        self.waiting: list[asyncio.Task[Obstacle | None]] = []

    async def raw(self, method: str, path: str, *, params: dict[str, str]) -> Object:
        self.lists += 1
        await self.open.wait()
        return {"items": list(self.objects.values())[:1]}

    async def get(self, resource: object, name: str, namespace: str) -> Object:
        await self.open.wait()
        if name not in self.objects:
            raise NotFound(404, name, details={"name": name})
        return self.objects[name]


def twins(server: Server) -> Twins:
    client = cast(Client, server)
    found = Twins(client)
    kept = Informer(
        WatchSpec((CAPI_ADDRESS,)), Cache({"namespace": lambda obj: (obj["metadata"]["namespace"],)}), client
    )
    kept.resource = CAPI_ADDRESS
    native = Informer(WatchSpec((kinds.ADDRESS,)), Cache(), client)
    found.pair(IPAddressLedger(Native(), native, client, found), IPAddressLedger(Capi(), kept, client, found))
    return found


async def crowded(server: Server) -> Twins:
    """So many look already that the next ones share a list."""
    found = twins(server)
    server.waiting = [asyncio.create_task(look(found)) for _ in range(FEW)]
    await asyncio.sleep(0)
    return found


async def look(found: Twins, name: str = "a-10-0-0-10") -> Obstacle | None:
    return await found.find("IPClaim", "default", name)


async def test_a_few_are_looked_for_by_name() -> None:
    """A list waits until the API server's cache has caught up; a name does not."""
    server = Server()
    server.open.set()
    found = twins(server)
    assert await asyncio.gather(*(look(found) for _ in range(FEW))) == [None] * FEW
    assert server.lists == 0


async def test_many_who_ask_at_once_share_two_looks() -> None:
    """The one under way may be too old for those who came after it was sent; the next serves them all."""
    server = Server()
    found = await crowded(server)
    asking = [asyncio.create_task(look(found)) for _ in range(50)]
    await asyncio.sleep(0)
    server.open.set()
    assert await asyncio.gather(*asking) == [None] * 50
    assert server.lists == 2


async def test_a_look_that_was_sent_before_does_not_count() -> None:
    """What was stored meanwhile must be seen."""
    server = Server()
    found = await crowded(server)
    first = asyncio.create_task(look(found))
    await asyncio.sleep(0)
    second = asyncio.create_task(look(found))
    await asyncio.sleep(0)
    server.objects["a-10-0-0-10"] = stored()
    server.open.set()
    await first
    seen = await second
    assert seen is not None
    assert (seen.name, seen.born) == ("a-10-0-0-10", 7)


async def test_an_object_of_another_provider_is_no_twin() -> None:
    """Its names say nothing about our addresses."""
    foreign = stored()
    foreign["spec"]["poolRef"] = {
        "apiGroup": "ipam.cluster.x-k8s.io",
        "kind": "InClusterIPPool",
        "name": "pool",
    }
    server = Server(foreign)
    server.open.set()
    assert await look(twins(server)) is None


async def test_no_twin_can_be_told_of_while_the_other_api_is_not_served() -> None:
    """A 404 that names no object is about the kind: our object is shown to nobody then."""

    class Unserved(Server):
        async def get(self, resource: object, name: str, namespace: str) -> Object:
            raise NotFound(404, "the server could not find the requested resource")

    with pytest.raises(NotFound):
        await look(twins(Unserved()))


@pytest.mark.cluster
async def test_what_was_taken_over_no_longer_says_when_it_was_made(cluster: DevCluster) -> None:
    """The revision of that write is not its birth: whoever compares it with a twin's must step back."""
    namespace = await make_namespace(cluster)
    async with admin(cluster) as client:
        await install(client, crds_of("metal3"))
        owner = {"apiVersion": kinds.CLAIM.api_version, "kind": "IPClaim", "name": "c", "uid": "earlier"}
        body = address("a-10-0-0-10", "10.0.0.10", "c", ownerReferences=[owner])
        made = await client.create(kinds.ADDRESS, body, namespace)
        assert born_at(made) > 0
        informer = Informer(WatchSpec((kinds.ADDRESS,)), Cache(), client)
        leases = IPAddressLedger(Native(), informer, client, Twins(client))
        taken = await leases.take_over(made, {"metadata": {"uid": "later"}})
        assert made_for(Native(), taken) == "later"
        assert born_at(await client.get(kinds.ADDRESS, "a-10-0-0-10", namespace)) == 0
