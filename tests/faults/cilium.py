"""LoadBalancer Services as Cilium's LB IPAM serves them: another's controller on the bench, never ours.

A Service's own status is all that is stored of who has what; the controller keeps the rest in memory. So
there is nothing that could be left over for somebody who is gone: an address that is lost shows only when the
pool runs dry. What a pool says of itself are counts, not holders.
"""

from __future__ import annotations

from tests.faults.trade import Object, Shown, Snapshot, twice
from tests.faults.vip import addresses, load_balancers, take_away
from tests.support.operator import built, install
from tests.support.vip import service

from berth.dialects.vip import kinds
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

POOL = Resource("cilium.io", "v2", "CiliumLoadBalancerIPPool", "ciliumloadbalancerippools", namespaced=False)
CONDITION = "cilium.io/IPAMRequestSatisfied"
NAME = "fault-pool"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Cilium:
    dialect = "cilium"
    shares_cluster = True
    page: Resource | None = POOL  # it counts who comes and goes
    resources: tuple[Resource, ...] = (kinds.SERVICE, POOL)

    async def open(self, client: Client, namespace: str, size: int) -> None:
        await install(client, [_crd()])  # there before its operator is, which brings its own
        await client.create(POOL, built(POOL, NAME, _spec(size)))

    async def resize(self, client: Client, namespace: str, size: int) -> None:
        await client.patch(POOL, NAME, {"spec": _spec(size)})

    async def close(self, client: Client, namespace: str) -> None:
        await take_away(client, namespace, kinds.SERVICE, POOL)

    def claim(self, name: str) -> tuple[Resource, Object]:
        """Without a class: those are its own by default."""
        return kinds.SERVICE, service(name)

    def shown(self, seen: Snapshot) -> list[Shown]:
        return [_shown(one) for one in load_balancers(seen)]

    def broken(self, seen: Snapshot) -> list[str]:
        return twice(self.shown(seen))

    def litter(self, seen: Snapshot) -> list[str]:
        return []

    def used(self, seen: Snapshot) -> int | None:
        return None


def _crd() -> Object:
    """As much of it as a pool needs to be stored."""
    names = {"kind": POOL.kind, "listKind": f"{POOL.kind}List", "plural": POOL.plural}
    version = {
        "name": POOL.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": ANYTHING},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": POOL.key},
        "spec": {
            "group": POOL.group,
            "scope": "Cluster",
            "names": {**names, "singular": POOL.kind.lower()},
            "versions": [version],
        },
    }


def _spec(size: int) -> Object:
    """From 10.0.0.1 on."""
    return {"blocks": [{"start": "10.0.0.1", "stop": f"10.0.{size // 256}.{size % 256}"}]}


def _shown(service: Object) -> Shown:
    satisfied = meta.condition(service, CONDITION) or {}
    waits = satisfied.get("message", "") if satisfied.get("status") == "False" else ""
    name = service["metadata"]["name"]
    return Shown(name, meta.uid(service), addresses(service), meta.is_deleting(service), waits)
