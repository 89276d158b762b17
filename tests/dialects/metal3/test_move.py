"""T24: the real clusterctl moves a Cluster with pool, claims and addresses to another control plane.

Both sides run an operator all the while, as they do when a management cluster is replaced.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.metal3 import (
    CAPI_ADDRESS,
    CAPI_CLAIM,
    CLUSTER,
    A,
    World,
    capi_claim,
    cluster_object,
    pool,
)
from tests.support.operator import CRD, eventually, running

from berth.devcluster import DevCluster
from berth.devcluster.binaries import Binaries
from berth.dialects.metal3 import kinds
from berth.kube import meta
from berth.kube.client import Client

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
Object = dict[str, Any]
SPEC = {**A, "clusterName": "cluster1", "pools": [{"start": "10.0.0.10", "end": "10.0.0.30"}]}
MOVES = 5
MOVABLE = "clusterctl.cluster.x-k8s.io"  # clusterctl puts it on the CRDs of the providers it installs


@dataclass(frozen=True, slots=True)
class Sides:
    source: World
    target: World
    clusters: tuple[DevCluster, DevCluster]

    def turned(self) -> Sides:
        """For the way back."""
        return Sides(self.target, self.source, (self.clusters[1], self.clusters[0]))


@pytest_asyncio.fixture(loop_scope="session")
async def sides() -> AsyncIterator[Sides]:
    async with AsyncExitStack() as stack:
        clusters = [await stack.enter_async_context(DevCluster()) for _ in range(2)]
        worlds = []
        for cluster in clusters:
            started = await stack.enter_async_context(running(cluster, dialects=("metal3",)))
            await label_crds(started.client)
            worlds.append(World(started.client, "default"))
        yield Sides(worlds[0], worlds[1], (clusters[0], clusters[1]))


async def label_crds(client: Client) -> None:
    """Cluster API's own, as `clusterctl init` leaves them. Ours have what they need however they came."""
    labels = {MOVABLE: "", "cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"}
    for crd in (await client.list(CRD)).items:
        if crd["spec"]["group"] != kinds.GROUP:
            await client.patch(CRD, crd["metadata"]["name"], {"metadata": {"labels": labels}})


async def clusterctl(source: DevCluster, target: DevCluster, home: Path) -> None:
    environment = os.environ | {"CLUSTERCTL_DISABLE_VERSIONCHECK": "true", "XDG_CONFIG_HOME": str(home)}
    command = [
        str(Binaries.locate(("clusterctl",))["clusterctl"]),
        "move",
        "--namespace",
        "default",
        "-v",
        "5",
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        "--kubeconfig",
        str(source.kubeconfig),
        "--to-kubeconfig",
        str(target.kubeconfig),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, output.decode()


async def populate(world: World) -> dict[str, str]:
    """A Cluster, what hangs on it, and a claim that does not; the addresses given."""
    stored = await world.create(cluster_object("cluster1"))
    owners = [meta.owner_reference(stored)]
    await world.create(pool("pool", SPEC))
    for name in ("c1", "c2", "c3"):
        await world.ask(name, ownerReferences=owners)
    await world.ask("free-standing")
    for name in ("m1", "m2"):
        await world.create(capi_claim(name, ownerReferences=owners))
        await world.capi_address_of(name)
    await world.remove(kinds.CLAIM, "c1")  # so that a new choice in the target would show
    return await addresses(world)


async def provisioned(world: World) -> None:
    """As Cluster API's controllers would say of the Cluster: clusterctl asks for it, and a move loses it."""
    initialized = {"infrastructureProvisioned": True, "controlPlaneInitialized": True}
    ready = {
        "type": "ControlPlaneInitialized",
        "status": "True",
        "reason": "Initialized",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"initialization": initialized, "conditions": [ready]}
    await world.edit(CLUSTER, "cluster1", {"status": status}, "status")


async def addresses(world: World) -> dict[str, str]:
    native = {
        f"IPClaim/{a['spec']['claim']['name']}": a["spec"]["address"] for a in await world.list(kinds.ADDRESS)
    }
    capi = {
        f"capi/{a['spec']['claimRef']['name']}": a["spec"]["address"] for a in await world.list(CAPI_ADDRESS)
    }
    return native | capi


async def test_clusterctl_moves_everything_and_no_address_changes(
    sides: Sides, tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """M-123, M-124, M-125, and X-35: what hangs on the Cluster has its address again, under new owners; five
    times, back and forth."""
    before = await populate(sides.source)
    stays = {"IPClaim/free-standing": before.pop("IPClaim/free-standing")}
    for number in range(MOVES):
        await moved(sides, tmp_path, before)
        # The free-standing claim stayed, and its address with it; the pool did not. It can still be released.
        assert await addresses(sides.source) == (stays if number == 0 else {})
        await sides.source.gone(kinds.POOL, "pool", 60)
        if number == 0:
            await sides.source.remove(kinds.CLAIM, "free-standing", 60)
            await sides.source.gone(kinds.ADDRESS, "a-10-0-0-13", 60)
        assert await sides.target.ask_text("newcomer") == ["10.0.0.10"]
        await sides.target.remove(kinds.CLAIM, "newcomer", 60)
        await sides.target.gone(kinds.ADDRESS, "a-10-0-0-10", 60)
        tried(1)
        sides = sides.turned()


async def moved(sides: Sides, home: Path, expected: dict[str, str]) -> None:
    await provisioned(sides.source)
    await clusterctl(*sides.clusters, home)

    async def arrived() -> bool:
        for name in ("c2", "c3"):
            assert (await sides.target.get(kinds.CLAIM, name)).get("status", {}).get("address")
        for name in ("m1", "m2"):
            ready = meta.condition(await sides.target.get(CAPI_CLAIM, name), "Ready")
            assert ready is not None
            assert ready["reason"] == "AddressAllocated"
        return await addresses(sides.target) == expected

    await eventually(arrived, 60)
    await owned_anew(sides.target)


async def owned_anew(world: World) -> None:
    """Every owner reference points to an object of this control plane."""
    uids = {
        meta.uid(obj)
        for resource in (CLUSTER, kinds.POOL, kinds.CLAIM, CAPI_CLAIM)
        for obj in await world.list(resource)
    }
    for resource in (kinds.POOL, kinds.ADDRESS, CAPI_ADDRESS):
        for obj in await world.list(resource):
            assert {owner["uid"] for owner in meta.owners(obj)} <= uids
