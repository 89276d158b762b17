"""What the commands say about objects as others left them: no operator runs here that puts them right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.metal3 import CAPI_ADDRESS, CAPI_CLAIM, capi_claim
from tests.support.operator import admin, crds_of, install
from tests.support.settings import settings_of
from typer.testing import CliRunner, Result

from berth.cli.main import app
from berth.devcluster import DevCluster
from berth.dialects.explain import DEFAULTS
from berth.dialects.kubipam import view as kubipam
from berth.dialects.kubipam.kinds import RANGE, REQUEST
from berth.dialects.metal3 import kinds
from berth.dialects.metal3 import view as metal3
from berth.errors import UserError
from berth.kube.client import Client
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]


@pytest_asyncio.fixture(loop_scope="session")
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    async with admin(cluster) as administrator:
        await install(administrator, crds_of("metal3", "kubipam", "vip"))
        yield administrator


async def leave(
    client: Client, resource: Resource, name: str, where: str, *, spec: Object, **status: Any
) -> None:
    """An object as somebody left it, its status included."""
    about = {"name": name, "namespace": where}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": about, "spec": spec}
    await client.create(resource, body, where)
    if status:
        await client.patch(resource, name, {"status": status}, where, subresource="status")


async def leave_a_pool(client: Client, namespace: str) -> None:
    spec = {"namePrefix": "a", "pools": [{"start": "10.0.0.1", "end": "10.0.0.4"}]}
    await leave(client, kinds.POOL, "pool", namespace, spec=spec)


async def command(cluster: DevCluster, *words: str) -> Result:
    """In a thread: it has an event loop of its own."""
    arguments = [*words, "--kubeconfig", str(cluster.kubeconfig)]
    return await asyncio.to_thread(CliRunner().invoke, app, arguments)


async def problems(client: Client, namespace: str, of: Any = metal3) -> dict[str, str]:
    """What is said about each object, by its kind and name."""
    rows = [row for row in await of.findings(client) if f" {namespace}/" in row.what]
    return {row.what.replace(f"{namespace}/", ""): row.problem for row in rows}


async def test_claims_that_lost_their_pool_or_their_address_are_reported(
    client: Client, namespace: str
) -> None:
    await leave_a_pool(client, namespace)
    await leave(client, kinds.CLAIM, "waits", namespace, spec={"pool": {"name": "gone"}})
    shown = {"name": "a-1", "namespace": namespace}
    await leave(client, kinds.CLAIM, "lost", namespace, spec={"pool": {"name": "pool"}}, address=shown)
    await leave(client, kinds.CLAIM, "new", namespace, spec={"pool": {"name": "pool"}})
    assert await problems(client, namespace) == {
        "IPPool pool": "",
        "IPClaim lost": "its status names IPAddress a-1, which does not exist",
        "IPClaim new": "",
        "IPClaim waits": f"its IPPool {namespace}/gone does not exist; it waits",
    }


async def test_what_a_watch_filter_leaves_alone_is_reported(client: Client, namespace: str) -> None:
    await leave_a_pool(client, namespace)
    told = settings_of(DEFAULTS, namespace=namespace, watch_filter="blue")
    (row,) = await metal3.findings(client, told)
    assert "is not blue: it is left alone; see --watch-filter" in row.problem


async def test_a_look_at_one_namespace_counts_what_others_hold_of_it(client: Client, namespace: str) -> None:
    """Of a kubipam range only: metal3's pools are for their own namespace."""
    await leave(client, RANGE, "r", namespace, spec={"ranges": ["10.0.0.0/24"]})
    far = {"ipam": {"name": "r", "namespace": namespace}}
    await leave(client, REQUEST, f"of-{namespace}", "default", spec=far, cidr="10.0.0.0/25", state="Ready")
    here = settings_of(DEFAULTS, namespace=namespace)
    (row,) = await kubipam.pools(client, here)
    assert (row.used, row.free) == (128, 128)
    assert await kubipam.leases(client, here) == []
    assert [row.what for row in await kubipam.findings(client, here)] == [f"IPAMRange {namespace}/r"]
    assert await metal3.pools(client, here) == []
    assert await metal3.findings(client, here) == []
    await client.delete(REQUEST, f"of-{namespace}", "default")


async def test_two_addresses_of_one_claim_are_reported(client: Client, namespace: str) -> None:
    await leave_a_pool(client, namespace)
    await leave(client, kinds.CLAIM, "c", namespace, spec={"pool": {"name": "pool"}})
    for number in (1, 2):
        spec = {"address": f"10.0.0.{number}", "pool": {"name": "pool"}, "claim": {"name": "c"}}
        await leave(client, kinds.ADDRESS, f"a-{number}", namespace, spec=spec)
    found = await problems(client, namespace)
    assert found["IPAddress a-1 (10.0.0.1)"] == ""
    assert "is held for the IPClaim that has" in found["IPAddress a-2 (10.0.0.2)"]


async def test_one_address_that_cannot_be_read_spoils_no_table(
    cluster: DevCluster, client: Client, namespace: str
) -> None:
    """Cluster API's own CRD takes any text."""
    await leave_a_pool(client, namespace)
    claim = {**capi_claim("c"), "metadata": {"name": "c", "namespace": namespace}}
    claim["spec"]["poolRef"]["name"] = "pool"
    await client.create(CAPI_CLAIM, claim, namespace)
    spec = {"address": "ten", "prefix": 24, "claimRef": {"name": "c"}, "poolRef": claim["spec"]["poolRef"]}
    await leave(client, CAPI_ADDRESS, "odd", namespace, spec=spec)
    (row,) = [row for row in await metal3.pools(client) if row.name == f"{namespace}/pool"]
    assert (row.total, row.used, row.state) == (4, 0, "1 that cannot be read: berth adopt --check")
    assert "cannot be read" in (await problems(client, namespace))["IPAddress odd (ten)"]
    shown = await command(cluster, "pools")
    assert (shown.exit_code, f"{namespace}/pool" in shown.stdout) == (0, True)


async def test_a_cidr_that_cannot_be_read_is_reported(client: Client, namespace: str) -> None:
    await leave(client, RANGE, "r", namespace, spec={"ranges": ["10.0.0.0/24"]})
    await leave(client, REQUEST, "odd", namespace, spec={"ipam": {"name": "r"}}, cidr="10/99", state="Ready")
    await leave(client, REQUEST, "waits", namespace, spec={"ipam": {"name": "r"}})
    assert await problems(client, namespace, kubipam) == {
        "IPAMRange r": "",
        "IPAMRequest odd (10/99)": "its CIDR cannot be read; correct or remove status.cidr",
        "IPAMRequest waits": "",
    }


async def test_adopt_names_what_it_takes_over_and_ends_with_1_for_the_rest(
    cluster: DevCluster, client: Client, namespace: str
) -> None:
    await leave_a_pool(client, namespace)
    await leave(client, kinds.CLAIM, "waits", namespace, spec={"pool": {"name": "gone"}})
    told = await command(cluster, "adopt", "--check")
    assert told.exit_code == 1
    assert f"metal3: IPPool {namespace}/pool: taken over as it is\n" in told.stdout
    assert f"metal3: IPClaim {namespace}/waits: its IPPool {namespace}/gone does not exist" in told.stdout
    rows = [
        json.loads(line)
        for line in (await command(cluster, "adopt", "--check", "--json")).stdout.splitlines()
    ]
    assert {"dialect": "metal3", "what": f"IPPool {namespace}/pool", "problem": ""} in rows


async def test_adopt_refuses_to_do_more_than_look(cluster: DevCluster) -> None:
    refused = await command(cluster, "adopt")
    assert isinstance(refused.exception, UserError)
    assert "berth adopt --check" in str(refused.exception)


async def test_pools_and_leases_are_shown_with_their_usage(
    cluster: DevCluster, client: Client, namespace: str
) -> None:
    await leave_a_pool(client, namespace)
    spec = {"address": "10.0.0.1", "pool": {"name": "pool"}, "claim": {"name": "c"}}
    await leave(client, kinds.ADDRESS, "a-1", namespace, spec=spec)
    line = next(line for line in (await command(cluster, "pools")).stdout.splitlines() if namespace in line)
    assert line.split() == ["metal3", "IPPool", f"{namespace}/pool", "1", "4", "█" * 5 + "░" * 15, "3"]
    leases = (await command(cluster, "leases")).stdout.splitlines()
    assert ["metal3", "10.0.0.1", "IPClaim", f"{namespace}/c", f"{namespace}/pool"] in [
        one.split() for one in leases
    ]
    rows = [json.loads(line) for line in (await command(cluster, "pools", "--json")).stdout.splitlines()]
    assert [(row["used"], row["free"]) for row in rows if row["name"] == f"{namespace}/pool"] == [(1, 3)]
    explained = await command(cluster, "explain", "ipclaim/nothing", "-n", namespace)
    assert f"no IPClaim {namespace}/nothing" in str(explained.exception)
