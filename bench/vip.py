"""`berth bench vip`: LoadBalancer Services served a second from a /16, beside the ceiling of their writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from bench.cluster import Scenario, collect, run_scenario
from berth.dialects.vip import kinds
from berth.dialects.vip.crds import crds
from berth.dialects.vip.translate import ip_object, owner, shown, with_ingress
from berth.errors import AlreadyExists
from berth.kube import patch
from berth.kube.client import Client, PatchKind
from berth.net import Block, Family

Object = dict[str, Any]
SIZES = (200, 1000, 4000)
GROUP = "bench"
SEGMENT = "10.0.0.0/16"
FIRST = (10 << 24) + 1


def run(sizes: tuple[int, ...] = SIZES) -> Iterator[Object]:
    return collect(run_scenario(scenario(), sizes))


def scenario() -> Scenario:
    numbers = count(FIRST)

    async def write(client: Client, service: Object, _: int) -> None:
        await _write(client, service, Block(Family.V4, next(numbers), 32))

    return Scenario(
        name="vip",
        dialect="vip",
        crds=crds,
        claims=kinds.SERVICE,
        claim=_service,
        is_bound=lambda service: bool(shown(service)),
        prepare=_prepare,
        writes=write,
    )


async def _prepare(client: Client, namespace: str) -> None:
    """Groups are of cluster scope and serve every namespace."""
    body = {
        "apiVersion": kinds.IPGROUP.api_version,
        "kind": "IPGroup",
        "metadata": {"name": GROUP},
        "spec": {"segment": SEGMENT, "excludedIPs": []},
    }
    with suppress(AlreadyExists):
        await client.create(kinds.IPGROUP, body)


def _service(namespace: str, number: int) -> Object:
    name = f"service-{number}"
    spec = {
        "type": "LoadBalancer",
        # A cluster has 2,768 node ports; with an address from us nobody needs them.
        "allocateLoadBalancerNodePorts": False,
        "selector": {"app": name},
        "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}],
    }
    about = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": spec}


async def _write(client: Client, service: Object, block: Block) -> None:
    """The operator's three writes for one Service."""
    namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
    steps = patch.add_finalizer(service, kinds.SERVICE_FINALIZER) or []
    held = await client.patch(kinds.SERVICE, name, steps, namespace, kind=PatchKind.JSON)
    await client.create(kinds.IP, ip_object(block, kinds.GROUP_LABEL, GROUP, owner(held)))
    body = patch.guarded({"status": with_ingress(held, (block,))}, held, uid=True)
    await client.patch(kinds.SERVICE, name, body, namespace, subresource="status")


if __name__ == "__main__":
    import sys

    import orjson

    chosen = tuple(int(word) for word in sys.argv[1:] if word.isdigit()) or SIZES
    for line in run(chosen):
        print(orjson.dumps(line).decode(), flush=True)
