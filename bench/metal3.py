"""`berth bench metal3` and `berth bench capi`: claims bound a second, beside the ceiling of their writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.cluster import Scenario, bench_cluster, ceiling, collect, run_scenario
from berth.devcluster.crds import cluster_api_crds
from berth.dialects.metal3 import kinds
from berth.dialects.metal3.claim_api import Written
from berth.dialects.metal3.crds import crds
from berth.dialects.metal3.ipaddressclaim import Capi
from berth.dialects.metal3.ipclaim import Native
from berth.dialects.metal3.translate import Netconfig, address_name
from berth.kube import patch
from berth.kube.client import Client, PatchKind
from berth.kube.resource import Resource

Object = dict[str, Any]
POOL = "bench"
FIRST = 10 << 24  # 10.0.0.0
CLAIM_V2 = kinds.CAPI_CLAIMS[0]
ADDRESS_V2 = kinds.CAPI_ADDRESSES[0]
USED_CRDS = ("ipaddressclaims", "ipaddresses", "clusters")


def run(sizes: tuple[int, ...] = (200, 1000)) -> Iterator[Object]:
    return collect(run_scenario(native_scenario(), sizes))


def run_capi(sizes: tuple[int, ...] = (200, 1000)) -> Iterator[Object]:
    return collect(run_scenario(capi_scenario(), sizes))


def run_ceiling(kind: str = "metal3", n: int = 1000) -> Iterator[Object]:
    return collect(_ceiling({"metal3": native_scenario, "capi": capi_scenario}[kind](), n))


async def _ceiling(scenario: Scenario, n: int) -> AsyncIterator[Object]:
    async with bench_cluster(_crds()) as (_, client):
        yield {
            "bench": f"{scenario.name}-ceiling",
            "n": n,
            "per_s": round(await ceiling(client, scenario, n), 1),
        }


def _crds() -> tuple[Object, ...]:
    return (*crds(), *_cluster_api())


def _cluster_api() -> tuple[Object, ...]:
    """Cluster API's CRDs as a Metal3 cluster has them, less the conversion webhook that is not there."""
    found = [yaml.safe_load(Path(path).read_text()) for path in cluster_api_crds()]
    return tuple(_without_conversion(crd) for crd in found if crd["spec"]["names"]["plural"] in USED_CRDS)


def _without_conversion(crd: Object) -> Object:
    crd["spec"].pop("conversion", None)
    return crd


async def _pool(client: Client, namespace: str) -> None:
    spec = {
        "namePrefix": "bench",
        "pools": [{"start": "10.0.0.0", "end": "10.255.255.255"}],
        "prefix": 8,
        "gateway": "10.0.0.1",
    }
    meta = {"name": POOL, "namespace": namespace}
    body = {"apiVersion": kinds.POOL.api_version, "kind": "IPPool", "metadata": meta, "spec": spec}
    await client.create(kinds.POOL, body, namespace)


def native_scenario() -> Scenario:
    flavour = Native()
    return Scenario(
        name="metal3",
        dialect="metal3",
        crds=_crds,
        claims=kinds.CLAIM,
        claim=lambda namespace, number: _claim(
            kinds.CLAIM, namespace, number, {"pool": {"name": POOL, "namespace": namespace}}
        ),
        is_bound=lambda claim: "address" in (claim.get("status") or {}),
        prepare=_pool,
        writes=_writes(flavour, kinds.CLAIM, kinds.ADDRESS),
    )


def capi_scenario() -> Scenario:
    flavour = Capi()
    spec = {"poolRef": {"apiGroup": kinds.GROUP, "kind": "IPPool", "name": POOL}}
    return Scenario(
        name="capi",
        dialect="metal3",
        crds=_crds,
        claims=CLAIM_V2,
        claim=lambda namespace, number: _claim(CLAIM_V2, namespace, number, spec),
        is_bound=lambda claim: "addressRef" in (claim.get("status") or {}),
        prepare=_pool,
        writes=_writes(flavour, CLAIM_V2, ADDRESS_V2),
    )


def _claim(resource: Resource, namespace: str, number: int, spec: Object) -> Object:
    meta = {"name": f"claim-{number}", "namespace": namespace}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, "spec": spec}


def _writes(flavour: Native | Capi, claims: Resource, addresses: Resource) -> Any:
    """The operator's three writes for one claim."""

    async def write(client: Client, claim: Object, number: int) -> None:
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        steps = patch.add_finalizer(claim, flavour.claim_finalizer) or []
        held = await client.patch(claims, name, steps, namespace, kind=PatchKind.JSON)
        address = ".".join(str(part) for part in (FIRST + number).to_bytes(4))
        pool = {
            "apiVersion": kinds.POOL.api_version,
            "kind": "IPPool",
            "metadata": {"name": POOL, "namespace": namespace, "uid": claim["metadata"]["uid"]},
        }
        written = Written(address_name("bench", address), address, Netconfig(8, "10.0.0.1", ()))
        record = await client.create(addresses, flavour.address_object(held, pool, written), namespace)
        status = flavour.bound_status(held, record)
        await client.patch(claims, name, {"status": status}, namespace, subresource="status")

    return write
