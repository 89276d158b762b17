"""Pools, leases, explanations and adoption as the commands show them, on a real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.operator import Operator, eventually, running

from berth.devcluster import DevCluster
from berth.dialects.explain import explain
from berth.dialects.kubipam import view as kubipam
from berth.dialects.kubipam.kinds import RANGE, REQUEST
from berth.dialects.metal3 import kinds
from berth.dialects.metal3 import view as metal3
from berth.dialects.view import PoolRow
from berth.dialects.vip.kinds import SERVICE
from berth.errors import UserError
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    async with running(cluster, dialects=("metal3", "kubipam")) as started:
        yield started


def thing(resource: Resource, namespace: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}


async def make_full_pool(operator: Operator, namespace: str) -> None:
    """One address, one claim that has it, one that waits."""
    spec = {"namePrefix": "a", "pools": [{"start": "10.0.0.1", "end": "10.0.0.1"}]}
    await operator.client.create(kinds.POOL, thing(kinds.POOL, namespace, "p", spec), namespace)
    for name in ("first", "second"):
        claim = thing(kinds.CLAIM, namespace, name, {"pool": {"name": "p"}})
        await operator.client.create(kinds.CLAIM, claim, namespace)

        async def answered(name: str = name) -> bool:
            return bool((await operator.client.get(kinds.CLAIM, name, namespace)).get("status"))

        await eventually(answered, 60)


async def test_a_pool_row_counts_what_is_taken(operator: Operator, namespace: str) -> None:
    await make_full_pool(operator, namespace)
    rows = [row for row in await metal3.pools(operator.client) if row.name == f"{namespace}/p"]
    assert [(row.total, row.used, row.free) for row in rows] == [(1, 1, 0)]


async def test_a_lease_row_names_the_holder(operator: Operator, namespace: str) -> None:
    await make_full_pool(operator, namespace)
    rows = [row for row in await metal3.leases(operator.client) if row.pool == f"{namespace}/p"]
    assert [(row.address, row.holder) for row in rows] == [("10.0.0.1", f"IPClaim {namespace}/first")]


async def test_explain_says_what_a_served_claim_has(operator: Operator, namespace: str) -> None:
    await make_full_pool(operator, namespace)
    found = await explain(operator.client, "ipclaim/first", namespace)
    assert found.answer == "has a-10-0-0-1"


async def test_explain_says_why_a_claim_waits_and_how_full_its_pool_is(
    operator: Operator, namespace: str
) -> None:
    await make_full_pool(operator, namespace)
    found = await explain(operator.client, "IPClaim/second", namespace)
    assert found.answer == "waits: Exhausted IP Pools"
    assert [(row.name, row.free) for row in found.pools] == [(f"{namespace}/p", 0)]

    async def event_is_there() -> bool:
        told = await explain(operator.client, "ipclaim/second", namespace)
        return any("PoolExhausted" in event for event in told.events)

    await eventually(event_is_there, 60)


async def test_explain_says_that_a_pool_is_not_there(operator: Operator, namespace: str) -> None:
    claim = thing(kinds.CLAIM, namespace, "early", {"pool": {"name": "later"}})
    await operator.client.create(kinds.CLAIM, claim, namespace)

    async def is_told() -> bool:
        found = await explain(operator.client, "ipclaim/early", namespace)
        assert found.pools == [PoolRow("metal3", "IPPool", f"{namespace}/later", 0, 0, 0, "does not exist")]
        return found.answer == f"waits: PoolNotFound, IPPool {namespace}/later not found"

    await eventually(is_told, 60)


async def test_explain_says_that_a_claim_is_paused(operator: Operator, namespace: str) -> None:
    claim = thing(kinds.CLAIM, namespace, "held", {"pool": {"name": "p"}})
    claim["metadata"]["annotations"] = {kinds.PAUSED: ""}
    await operator.client.create(kinds.CLAIM, claim, namespace)
    answer = (await explain(operator.client, "ipclaim/held", namespace)).answer
    assert answer == f"is paused: take the annotation {kinds.PAUSED} away"


async def test_explain_names_the_kinds_it_knows(operator: Operator, namespace: str) -> None:
    with pytest.raises(UserError, match="ipamrequest"):
        await explain(operator.client, "pod/x", namespace)
    with pytest.raises(UserError, match=r"no IPClaim .*/nothing"):
        await explain(operator.client, "ipclaim/nothing", namespace)


async def test_adoption_reports_two_objects_with_one_address(operator: Operator, namespace: str) -> None:
    await make_full_pool(operator, namespace)
    spec = {"address": "10.0.0.1", "pool": {"name": "p"}, "claim": {"name": "stranger"}}
    double = thing(kinds.ADDRESS, namespace, "by-hand", spec)
    await operator.client.create(kinds.ADDRESS, double, namespace)
    found = [row for row in await metal3.findings(operator.client) if namespace in row.what]
    assert [(row.what.partition(" (")[0], bool(row.problem)) for row in found] == [
        (f"IPPool {namespace}/p", False),
        (f"IPAddress {namespace}/a-10-0-0-1", False),
        (f"IPAddress {namespace}/by-hand", True),
        (f"IPClaim {namespace}/first", False),
        (f"IPClaim {namespace}/second", False),
    ]


async def test_explain_says_why_a_service_is_nobodys(operator: Operator, namespace: str) -> None:
    for name, spec in (
        ("inside", {"ports": [{"port": 80}]}),
        ("classed", {"type": "LoadBalancer", "loadBalancerClass": "x/y", "ports": [{"port": 80}]}),
    ):
        await operator.client.create(SERVICE, thing(SERVICE, namespace, name, spec), namespace)
    inside = await explain(operator.client, "service/inside", namespace)
    assert inside.answer == "gets no address: it is of type ClusterIP, and only LoadBalancer is served"
    assert inside.pools == []
    assert "x/y is served where" in (await explain(operator.client, "service/classed", namespace)).answer


async def test_adoption_reports_an_address_without_its_pool(operator: Operator, namespace: str) -> None:
    spec = {"address": "10.0.0.9", "pool": {"name": "gone"}, "claim": {"name": "x"}}
    await operator.client.create(kinds.ADDRESS, thing(kinds.ADDRESS, namespace, "lost", spec), namespace)
    found = [row for row in await metal3.findings(operator.client) if namespace in row.what]
    assert ["does not exist" in row.problem for row in found] == [True]


async def test_kubipam_ranges_and_grants_are_shown(operator: Operator, namespace: str) -> None:
    spec: dict[str, Any] = {"ranges": ["192.168.0.0/24"], "chunkSize": 26}
    await operator.client.create(RANGE, thing(RANGE, namespace, "r", spec), namespace)
    request = thing(REQUEST, namespace, "q", {"ipam": {"name": "r"}})
    await operator.client.create(REQUEST, request, namespace)

    async def granted() -> bool:
        found = await operator.client.get(REQUEST, "q", namespace)
        return (found.get("status") or {}).get("state") == "Ready"

    await eventually(granted, 60)
    pools = [row for row in await kubipam.pools(operator.client) if row.name == f"{namespace}/r"]
    assert [(row.total, row.used, row.free) for row in pools] == [(256, 64, 192)]
    leases = [row for row in await kubipam.leases(operator.client) if row.pool == f"{namespace}/r"]
    assert [row.address for row in leases] == ["192.168.0.0/26"]
    assert (await explain(operator.client, "ipamrequest/q", namespace)).answer == "has 192.168.0.0/26"
