"""The operator as deploy/all.yaml installs it, under exactly the rights that file grants.

Every dialect works, with its webhooks, and the API server refuses nothing. The control plane is this file's
own: what is registered here is answered by nobody afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support import metallb
from tests.support.cluster import make_namespace
from tests.support.operator import admin, built, capi_crds, eventually, install
from tests.support.shipped import DEPLOY, NAMESPACES, ROUTED, Shipped, fetched, installed
from tests.support.vitistack import Api

from berth import manifests as make
from berth.control.door import SECRET
from berth.control.events import EVENTS
from berth.control.webhooks import MUTATING, VALIDATING
from berth.devcluster import DevCluster
from berth.errors import Forbidden
from berth.kube import auth, meta
from berth.kube.client import Client
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]
SERVICES = Resource("", "v1", "Service", "services")
SECRETS = Resource("", "v1", "Secret", "secrets")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
LONG = 60.0
REGISTERED = [obj["metadata"]["name"] for obj in make.webhooks(make.Options(dialects=make.EVERY))] + [SECRET]


@dataclass(frozen=True, slots=True)
class Example:
    """Something to create, and where its answer is to be found; a pool has none."""

    resource: Resource
    spec: Mapping[str, Any]
    answer: tuple[str, ...] = ()
    name: str = "rights"
    annotations: Mapping[str, str] = field(default_factory=dict)

    def body(self, namespace: str) -> Object:
        where: Object = {"namespace": namespace} if self.resource.namespaced else {}
        return built(self.resource, self.name, self.spec, annotations=self.annotations, **where)

    def where(self, namespace: str) -> str:
        return namespace if self.resource.namespaced else ""


def _service(name: str, *answer: str, annotations: Mapping[str, str] | None = None, **spec: Any) -> Example:
    wanted = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
    return Example(SERVICES, wanted, answer, name, annotations or {})


INGRESS = ("status", "loadBalancer", "ingress")
EXAMPLES = (
    Example(
        Resource("ipam.metal3.io", "v1alpha1", "IPPool", "ippools"),
        {"namePrefix": "r", "pools": [{"start": "10.0.0.1", "end": "10.0.0.9"}]},
    ),
    Example(
        Resource("ipam.metal3.io", "v1alpha1", "IPClaim", "ipclaims"),
        {"pool": {"name": "rights"}},
        ("status", "address"),
    ),
    Example(
        Resource("ipam.cluster.x-k8s.io", "v1beta2", "IPAddressClaim", "ipaddressclaims"),
        {"poolRef": {"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "rights"}},
        ("status", "addressRef"),
    ),
    Example(
        Resource("ipam.mandelsoft.org", "v1alpha1", "IPAMRange", "ipamranges"), {"ranges": ["192.168.7.0/24"]}
    ),
    Example(
        Resource("ipam.mandelsoft.org", "v1alpha1", "IPAMRequest", "ipamrequests"),
        {"ipam": {"name": "rights"}},
        ("status", "cidr"),
    ),
    Example(
        Resource("paas.org", "v1", "IPGroup", "ipgroups", False),
        {"segment": "172.30.9.0/29", "excludedIPs": []},
    ),
    _service("vip", *INGRESS, loadBalancerClass="paas.org/vip"),
    _service("vip-waits", loadBalancerClass="paas.org/vip", loadBalancerIP="9.9.9.9"),  # refused: an Event
    _service("vitistack", *INGRESS),
    _service("vitistack-own", *INGRESS, annotations={"ipam.vitistack.io/secret": "own"}),
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shipped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shipped]:
    home = tmp_path_factory.mktemp("shipped")
    async with DevCluster(ROUTED) as own, admin(own) as client:
        await install(client, [*capi_crds(), metallb.crd()])
        await client.create(NAMESPACES, built(NAMESPACES, metallb.NAMESPACE))
        await metallb.start_pod(client)
        yield await installed(own, client, DEPLOY / "all.yaml", home)


async def test_every_dialect_works_and_nothing_is_forbidden(shipped: Shipped, tmp_path: Path) -> None:
    client, api = shipped.client, Api(tmp_path)
    namespace = await make_namespace(shipped.cluster)
    secret = {**built(SECRETS, "own"), "stringData": {"secret": "a-secret-of-ones-own"}}
    await client.create(SECRETS, secret, namespace)
    api.start()
    try:
        async with metallb.assigning(client), shipped.running(api_url=api.url) as port:
            await eventually(partial(_asks_us, client), LONG)
            for example in EXAMPLES:
                await client.create(example.resource, example.body(namespace), example.where(namespace))
            for example in EXAMPLES:
                await eventually(partial(_is_served, client, example, namespace), LONG)
            await eventually(partial(_event_about, client, namespace, "vip-waits"), LONG)
            for example in reversed(EXAMPLES):
                await client.delete(example.resource, example.name, example.where(namespace))
            for example in EXAMPLES:
                await eventually(partial(_is_gone, client, example, namespace), LONG)
            series = (await fetched(port, "metrics"))[1]
    finally:
        api.stop()
    refused = [line for line in series.splitlines() if 'code="403"' in line]
    assert refused == []
    assert 'code="201"' in series
    assert "orbidden" not in shipped.log()


async def test_a_second_start_finds_certificate_and_webhooks_and_writes_neither(shipped: Shipped) -> None:
    """They are written once, by the leader of the first start, for all replicas and all time."""
    before = await _registered(shipped.client)
    assert sorted(name for name, _ in before) == sorted(REGISTERED)
    namespace = await make_namespace(shipped.cluster)
    async with shipped.running():
        for example in EXAMPLES[:2]:  # when the claim is served the leader is at work
            await shipped.client.create(example.resource, example.body(namespace), namespace)
        await eventually(partial(_is_served, shipped.client, EXAMPLES[1], namespace), LONG)
    assert await _registered(shipped.client) == before


async def test_what_is_not_granted_is_out_of_reach(shipped: Shipped) -> None:
    """Secrets are read by their name, never listed; records only where they belong."""
    async with Client(auth.load(shipped.account)) as account:
        for resource, namespace in ((SECRETS, ""), (SECRETS, "ipam-system"), (CONFIG_MAPS, "kube-system")):
            with pytest.raises(Forbidden):
                await account.list(resource, namespace)
        with pytest.raises(Forbidden):
            await account.create(SECRETS, built(SECRETS, "planted"), "kube-system")


async def _asks_us(client: Client) -> bool:
    """The leader registers its webhooks when it leads; before that vitistack's Services are not filled in."""
    return {name for name, _ in await _registered(client)} >= set(REGISTERED)


async def _registered(client: Client) -> list[tuple[str, str]]:
    """Webhook configurations, and the Secret with the certificate, each with its revision."""
    found = [obj for resource in (MUTATING, VALIDATING) for obj in (await client.list(resource)).items]
    found += [
        s for s in (await client.list(SECRETS, "berth-system")).items if s["metadata"]["name"] == SECRET
    ]
    return [(obj["metadata"]["name"], meta.resource_version(obj)) for obj in found]


async def _is_served(client: Client, example: Example, namespace: str) -> bool:
    found: Any = await client.get(example.resource, example.name, example.where(namespace))
    for key in example.answer:
        found = (found or {}).get(key)
    return bool(found)


async def _event_about(client: Client, namespace: str, name: str) -> bool:
    events = (await client.list(EVENTS, namespace)).items
    return any(event["involvedObject"]["name"] == name for event in events)


async def _is_gone(client: Client, example: Example, namespace: str) -> bool:
    items = (await client.list(example.resource, example.where(namespace))).items
    return not any(item["metadata"]["name"] == example.name for item in items)
