"""Three upstream systems in one cluster, taken over at once: no address moves, then nothing is written.

What they leave is in tests/support/upstreams.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from tests.support import metal3
from tests.support.operator import Operator, admin, crds_of, eventually, install, running
from tests.support.shipped import fetched
from tests.support.upstreams import EACH, PLACE, leave_all

from berth.devcluster import DevCluster
from berth.dialects.kubipam.kinds import RANGE, REQUEST
from berth.dialects.metal3 import kinds
from berth.dialects.vip import kinds as vip_kinds
from berth.kube import meta
from berth.kube.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]
KINDS = (
    *(kinds.POOL, kinds.CLAIM, kinds.ADDRESS, metal3.CAPI_CLAIM, metal3.CAPI_ADDRESS),
    *(RANGE, REQUEST),
    *(vip_kinds.IPGROUP, vip_kinds.IP, vip_kinds.SERVICE),
)
WRITES = {"create", "patch", "update", "replace", "delete", "post", "put"}
# Everything is looked at again and again while the test looks on.
OFTEN: Object = {"vip_resync_seconds": 0.5, "metal3_sweep_seconds": 0.5}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def upstreams() -> AsyncIterator[DevCluster]:
    async with DevCluster() as own:
        async with admin(own) as client:
            await install(client, crds_of("metal3", "kubipam", "vip"))
            await leave_all(client)
        yield own


async def test_no_address_moves_and_a_second_start_writes_nothing(upstreams: DevCluster) -> None:
    """P11, P12 of all three at once."""
    async with admin(upstreams) as client:
        before = await addresses(client)
    assert len(before) == 4 * EACH + EACH  # vip's are in the Services and in the IP objects
    async with running(upstreams, dialects=("metal3", "kubipam", "vip"), **OFTEN) as first:
        await settled(first)
        assert await addresses(first.client) == before
        stored = await revisions(first.client)
    async with running(upstreams, dialects=("metal3", "kubipam", "vip"), **OFTEN) as second:
        assert await settled(second) == 0
        assert await revisions(second.client) == stored
        assert await addresses(second.client) == before


async def addresses(client: Client) -> dict[str, str]:
    """Who holds what, as its user sees it."""
    found: dict[str, str] = {}
    for resource in (kinds.ADDRESS, metal3.CAPI_ADDRESS):
        for obj in (await client.list(resource)).items:
            holder = obj["spec"].get("claim") or obj["spec"]["claimRef"]
            found[f"{resource.kind} for {holder['name']}"] = obj["spec"]["address"]
    for obj in (await client.list(REQUEST)).items:
        found[str(meta.ref(obj))] = obj["status"]["cidr"]
    for obj in (await client.list(vip_kinds.IP)).items:
        found[f"IP of {meta.annotations(obj)[vip_kinds.OWNER]}"] = obj["metadata"]["name"]
    for obj in (await client.list(vip_kinds.SERVICE, PLACE)).items:
        if obj["spec"]["type"] == "LoadBalancer":
            found[str(meta.ref(obj))] = obj["status"]["loadBalancer"]["ingress"][0]["ip"]
    return found


async def revisions(client: Client) -> dict[str, str]:
    return {
        f"{resource.api_version} {meta.ref(obj)}": meta.resource_version(obj)
        for resource in KINDS
        for obj in (await client.list(resource)).items
    }


async def settled(operator: Operator) -> int:
    """The number of writes so far, when every controller was at work and the last rounds wrote nothing."""
    await eventually(partial(_all_at_work, operator), 60)

    async def quiet() -> bool:
        before = await _told(operator)
        await eventually(partial(_went_round, operator, before), 60, every=0.2)
        return _writes(await _told(operator)) == _writes(before)

    await eventually(quiet, 60, every=0.2)
    return int(_writes(await _told(operator)))


Samples = dict[tuple[str, ...], float]


async def _told(operator: Operator) -> Samples:
    """The counters that matter: reconciles by controller, requests by verb."""
    _, text = await fetched(operator.listening.metrics, "metrics")
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.labels.get("controller") or sample.labels.get("verb")
            if sample.name in ("berth_reconcile_seconds_count", "berth_kube_request_seconds_count") and key:
                found[sample.name, key] = found.get((sample.name, key), 0) + sample.value
    return found


def _reconciled(told: Samples, controller: str) -> float:
    return told.get(("berth_reconcile_seconds_count", controller), 0)


def _writes(told: Samples) -> float:
    verbs = {key[1].lower() for key in told if key[0] == "berth_kube_request_seconds_count"}
    assert verbs <= WRITES | {"get", "list", "watch"}, verbs
    return sum(value for (name, verb), value in told.items() if verb.lower() in WRITES and "request" in name)


async def _all_at_work(operator: Operator) -> bool:
    """Each claim, request and Service was looked at at least once."""
    told = await _told(operator)
    wanted = {
        "metal3.ipclaim": EACH,
        "metal3.ipaddressclaim": EACH,
        "kubipam.request": EACH,
        "vip.service": EACH,
    }
    missing = {name: _reconciled(told, name) for name in wanted if _reconciled(told, name) < wanted[name]}
    assert not missing, told
    return True


async def _went_round(operator: Operator, before: Samples) -> bool:
    """vip looks at every Service again and again: three rounds are time enough for anybody."""
    now = _reconciled(await _told(operator), "vip.service")
    return now >= _reconciled(before, "vip.service") + 3 * EACH
