"""One story in every dialect that has the shared claim reconciler, and in the tutorial's: what a user of any
of them can rely on. vitistack gives its addresses during admission and has a story of its own
(tests/dialects/vitistack/test_walkthrough.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from tests.dialects.toy import CLAIM, POOL, Toy
from tests.faults.kubipam import Kubipam
from tests.faults.metal3 import Metal3
from tests.faults.trade import Market, Shown, Snapshot, Trade
from tests.faults.vip import Vip
from tests.support.cluster import drop_namespace, make_namespace
from tests.support.operator import admin, eventually, running

import berth.dialects
from berth.devcluster import DevCluster
from berth.dialects.metal3 import kinds as metal3
from berth.dialects.vip import kinds as vip
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]
EVENTS = Resource("", "v1", "Event", "events")


class ToyTrade:
    dialect = "toy"
    shares_cluster = False
    page: Resource | None = None
    resources: tuple[Resource, ...] = (CLAIM,)

    async def open(self, client: Client, namespace: str, size: int) -> None:
        assert size == 2
        body = {"apiVersion": POOL.api_version, "kind": POOL.kind, "metadata": {"name": "pool"}}
        await client.create(POOL, {**body, "spec": {"cidr": "10.0.0.0/31"}}, namespace)

    async def resize(self, client: Client, namespace: str, size: int) -> None:
        raise AssertionError("a toy's pool does not grow")

    async def close(self, client: Client, namespace: str) -> None:
        """Everything is in the namespace."""

    def claim(self, name: str) -> tuple[Resource, Object]:
        body = {"apiVersion": CLAIM.api_version, "kind": CLAIM.kind, "metadata": {}, "spec": {"pool": "pool"}}
        return CLAIM, body

    def shown(self, seen: Snapshot) -> list[Shown]:
        return [
            Shown(
                one["metadata"]["name"],
                meta.uid(one),
                (one.get("status") or {}).get("address", ""),
                meta.is_deleting(one),
            )
            for one in seen[CLAIM.key]
        ]

    def broken(self, seen: Snapshot) -> list[str]:
        return []

    def litter(self, seen: Snapshot) -> list[str]:
        return []

    def used(self, seen: Snapshot) -> int | None:
        return None


@dataclass(frozen=True, slots=True)
class Shape:
    """What of the story is told in other words."""

    trade: Trade
    stem: str  # of the names of its claims
    last: str  # the second of the pool's two addresses, as a claim asks for it
    pin: Callable[[Object, str], object]
    refusal: str = "PoolExhausted"

    @property
    def id(self) -> str:
        return f"{self.trade.dialect}-{self.trade.claim(self.stem)[0].kind}"


def annotated(name: str) -> Callable[[Object, str], object]:
    return lambda body, address: body["metadata"].update(annotations={name: address})


def specified(name: str) -> Callable[[Object, str], object]:
    return lambda body, address: body["spec"].update({name: address})


SHAPES = (
    Shape(Metal3(), "a", "10.0.0.2", annotated(metal3.WANTED_ADDRESS)),
    Shape(Metal3(), "k", "10.0.0.2", annotated(metal3.WANTED_ADDRESS)),
    Shape(Kubipam(), "a", "10.0.0.1/32", specified("request")),
    Shape(Vip(), "a", "10.0.0.2", annotated(vip.WANTED_ADDRESS), refusal="AllocationFailed"),
    Shape(ToyTrade(), "a", "10.0.0.1", specified("address")),
)


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.id)
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shape:
    monkeypatch.setattr(berth.dialects, "DIALECTS", (*berth.dialects.DIALECTS, Toy()))
    chosen: Shape = request.param
    return chosen


@pytest_asyncio.fixture(loop_scope="session")
async def market(cluster: DevCluster, shape: Shape) -> AsyncIterator[Market]:
    """A pool of two addresses in a namespace of its own."""
    namespace = await make_namespace(cluster)
    async with admin(cluster) as client:
        yield Market(shape.trade, client, namespace)
        await shape.trade.close(client, namespace)
    await drop_namespace(cluster, namespace)


async def ask(shape: Shape, market: Market, name: str, address: str = "") -> None:
    resource, body = shape.trade.claim(name)
    body["metadata"] |= {"name": name, "namespace": market.namespace}
    if address:
        shape.pin(body, address)
    await market.client.create(resource, body, market.namespace)


async def stored(shape: Shape, market: Market) -> dict[str, Object]:
    resource, _ = shape.trade.claim(shape.stem)
    found = (await market.client.list(resource, market.namespace)).items
    return {one["metadata"]["name"]: one for one in found}


async def answer(market: Market, name: str) -> str:
    found = (await market.shown()).get(name)
    return found.answer if found else ""


async def reasons(market: Market, name: str) -> set[str]:
    found = (await market.client.list(EVENTS, market.namespace)).items
    return {one["reason"] for one in found if one["involvedObject"]["name"] == name}


async def test_a_claim_is_held_served_refused_woken_and_left_alone(
    cluster: DevCluster, shape: Shape, market: Market
) -> None:
    first, second, third = (f"{shape.stem}{number}" for number in range(3))
    async with running(cluster, dialects=(shape.trade.dialect,)):
        await shape.trade.open(market.client, market.namespace, 2)
        # A pin is honoured.
        await ask(shape, market, first, shape.last)
        given = await eventually(lambda: answer(market, first))
        assert shape.last.replace(".", "-") in given.replace(".", "-")
        # The next gets what is left; whoever is served is held.
        await ask(shape, market, second)
        other = await eventually(lambda: answer(market, second))
        assert other != given
        assert all(meta.finalizers(one) for one in (await stored(shape, market)).values())
        # A full pool refuses, and says why in one word.
        await ask(shape, market, third)
        await eventually(lambda: is_told(market, third, shape.refusal))
        assert await answer(market, third) == ""
        # Release frees: whoever waits is served with it.
        await market.drop(first)
        assert await eventually(lambda: answer(market, third)) == given
        await eventually(lambda: is_at_rest(shape, market))
        before = await stored(shape, market)
    # A restart moves nothing, and writes nothing.
    async with running(cluster, dialects=(shape.trade.dialect,)):
        await ask(shape, market, "late")  # it waits behind nobody, and is looked at after all the others
        await eventually(lambda: is_told(market, "late", shape.refusal))
        after = await stored(shape, market)
        assert {name: meta.resource_version(after[name]) for name in before} == {
            name: meta.resource_version(one) for name, one in before.items()
        }
        for name in (second, third, "late"):
            await market.drop(name)
        await eventually(lambda: is_empty(shape, market))


async def is_told(market: Market, name: str, reason: str) -> bool:
    return reason in await reasons(market, name)


async def is_at_rest(shape: Shape, market: Market) -> bool:
    """What its status shows is all there is, and its annotation, where it has one, was written."""
    seen = await stored(shape, market)
    return len(seen) == 2 and not any(meta.is_deleting(one) for one in seen.values())


async def is_empty(shape: Shape, market: Market) -> bool:
    return not await stored(shape, market)
