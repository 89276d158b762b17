"""The operator as the files of deploy/ install it, under exactly the rights that file grants.

Every dialect works, with its webhooks, and the API server refuses nothing: with all of them in one file, and
with a file each, where no other dialect's right can stand in for one that is missing. The control planes are
these tests' own: what is registered here is answered by nobody afterwards.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from tests.kube.certificates import Authority
from tests.support import metallb
from tests.support.cluster import Kubectl, make_namespace
from tests.support.metal3 import cluster_object
from tests.support.operator import admin, built, capi_crds, eventually, install
from tests.support.shipped import DEPLOY, NAMESPACES, ROUTED, Shipped, fetched, installed
from tests.support.vitistack import Api

from berth import manifests as make
from berth.control.events import EVENTS
from berth.control.webhook_server import SECRET
from berth.control.webhooks import MUTATING, VALIDATING
from berth.devcluster import DevCluster
from berth.devcluster.ports import free
from berth.dialects.kubipam.kinds import RANGE, REQUEST
from berth.dialects.metal3 import kinds as metal3_kinds
from berth.dialects.vip import kinds as vip_kinds
from berth.errors import Forbidden, Invalid
from berth.kube import auth, meta
from berth.kube.client import Client
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]
SERVICES = Resource("", "v1", "Service", "services")
SECRETS = Resource("", "v1", "Secret", "secrets")
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
LONG = 60.0


def registered_by(*dialects: str) -> list[str]:
    """What the operator itself registers; the policies beside it come with the files."""
    plans = make.plans(make.Options(dialects=dialects))
    return [obj["metadata"]["name"] for plan in plans for _, obj in plan.configurations()]


REGISTERED = [*registered_by(*make.EVERY), SECRET]


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
CLUSTER = cluster_object("rights")
METAL3 = (
    Example(metal3_kinds.CLUSTERS[0], CLUSTER["spec"]),
    Example(
        metal3_kinds.POOL,
        {"namePrefix": "r", "clusterName": "rights", "pools": [{"start": "10.0.0.1", "end": "10.0.0.9"}]},
        ("metadata", "ownerReferences"),
    ),
    Example(metal3_kinds.CLAIM, {"pool": {"name": "rights"}}, ("status", "address")),
    Example(
        metal3_kinds.CAPI_CLAIMS[0],
        {"poolRef": {"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "rights"}},
        ("status", "addressRef"),
    ),
)
KUBIPAM = (
    Example(RANGE, {"ranges": ["192.168.7.0/24"]}),
    Example(REQUEST, {"ipam": {"name": "rights"}}, ("status", "cidr")),
)
VIP = (
    Example(vip_kinds.IPGROUP, {"segment": "172.30.9.0/29", "excludedIPs": []}),
    _service("vip", *INGRESS, loadBalancerClass="paas.org/vip"),
    _service("vip-waits", loadBalancerClass="paas.org/vip", loadBalancerIP="9.9.9.9"),  # refused: an Event
)
VITISTACK = (
    _service("vitistack", *INGRESS),
    _service("vitistack-own", *INGRESS, annotations={"ipam.vitistack.io/secret": "own"}),
)
EXAMPLES = (*METAL3, *KUBIPAM, *VIP, *VITISTACK)
# vitistack's file is the last: only it grants something in namespaces that stay.
FILES = {"metal3": METAL3, "kubipam": KUBIPAM, "vip": VIP, "vitistack": VITISTACK}


@asynccontextmanager
async def prepared() -> AsyncIterator[tuple[DevCluster, Client]]:
    """A cluster with what the documents tell to have first."""
    async with DevCluster(ROUTED) as own, admin(own) as client:
        await install(client, [*capi_crds(), metallb.crd()])
        await client.create(NAMESPACES, built(NAMESPACES, metallb.NAMESPACE))
        await metallb.start_pod(client)
        yield own, client


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shipped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shipped]:
    async with prepared() as (own, client):
        yield await installed(own, client, DEPLOY / "all.yaml", tmp_path_factory.mktemp("shipped"))


async def test_every_dialect_works_and_nothing_is_forbidden(shipped: Shipped, tmp_path: Path) -> None:
    api = Api(tmp_path)
    api.start()
    try:
        async with metallb.assigning(shipped.client), shipped.running(api_url=api.url) as port:
            await eventually(partial(_asks_us, shipped.client, REGISTERED), LONG)
            await play(shipped, EXAMPLES)
            await nothing_was_forbidden(shipped, port)
    finally:
        api.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_each_dialect_works_under_the_rights_of_its_own_file(tmp_path: Path) -> None:
    api = Api(tmp_path)
    api.start()
    try:
        async with prepared() as (own, client), metallb.assigning(client):
            for dialect, examples in FILES.items():
                home = tmp_path / dialect
                home.mkdir()
                one = await installed(own, client, DEPLOY / f"{dialect}.yaml", home)
                flags = {"vip": {"vip_classes": "paas.org/vip"}, "vitistack": {"api_url": api.url}}
                old = dialect == "vip" and await _leave_a_virtual_ip(one)
                async with one.running(**flags.get(dialect, {})) as port:
                    await eventually(partial(_asks_us, client, registered_by(dialect)), LONG)
                    await play(one, examples)
                    if old:
                        await eventually(partial(_is_migrated, client), LONG)
                    await nothing_was_forbidden(one, port)
                await _no_webhooks(client)
    finally:
        api.stop()


async def play(shipped: Shipped, examples: tuple[Example, ...]) -> None:
    """All are served, or told why not, and go again."""
    client, namespace = shipped.client, await make_namespace(shipped.cluster)
    secret = {**built(SECRETS, "own"), "stringData": {"secret": "a-secret-of-ones-own"}}
    await client.create(SECRETS, secret, namespace)
    for example in examples:
        await client.create(example.resource, example.body(namespace), example.where(namespace))
    for example in examples:
        await eventually(partial(_is_served, client, example, namespace), LONG)
    if VIP[-1] in examples:
        await eventually(partial(_event_about, client, namespace, "vip-waits"), LONG)
    for example in reversed(examples):
        await client.delete(example.resource, example.name, example.where(namespace))
    for example in examples:
        await eventually(partial(_is_gone, client, example, namespace), LONG)


async def nothing_was_forbidden(shipped: Shipped, port: int) -> None:
    series = (await fetched(port, "metrics"))[1]
    assert [line for line in series.splitlines() if 'code="403"' in line] == []
    assert 'code="201"' in series
    assert "orbidden" not in shipped.log()


async def _leave_a_virtual_ip(shipped: Shipped) -> bool:
    """On its way to be migrated, which makes a Service and deletes it again: before our webhooks are there,
    and past the policies as from a backup."""
    documents = list(yaml.safe_load_all((DEPLOY.parent / "examples" / "vip" / "migration.yaml").read_text()))
    [old] = (obj for obj in documents if obj["kind"] == "VirtualIP")
    old["metadata"]["annotations"] = {vip_kinds.MIGRATE: ""}
    await Kubectl(shipped.cluster)("create", "-f", "-", stdin=yaml.safe_dump_all(documents))
    return True


async def _is_migrated(client: Client) -> bool:
    found = await client.get(vip_kinds.VIRTUAL_IP, "legacy", "default")
    return bool((found.get("status") or {}).get("state") == "Migrated")


async def _no_webhooks(client: Client) -> None:
    """The next file's operator does not answer for these."""
    for resource in (MUTATING, VALIDATING):
        for obj in (await client.list(resource)).items:
            await client.delete(resource, obj["metadata"]["name"])


async def test_a_second_start_finds_certificate_and_webhooks_and_writes_neither(shipped: Shipped) -> None:
    """They are written once, by the leader of the first start, for all replicas and all time."""
    before = await _registered(shipped.client)
    assert sorted(name for name, _ in before) == sorted(REGISTERED)
    namespace = await make_namespace(shipped.cluster)
    async with shipped.running():
        for example in KUBIPAM:  # when the request is served the leader is at work
            await shipped.client.create(example.resource, example.body(namespace), namespace)
        await eventually(partial(_is_served, shipped.client, KUBIPAM[1], namespace), LONG)
    assert await _registered(shipped.client) == before


async def test_what_is_not_granted_is_out_of_reach(shipped: Shipped) -> None:
    """Secrets are read by their name, never listed; records only where they belong."""
    async with Client(auth.load(shipped.account)) as account:
        for resource, namespace in ((SECRETS, ""), (SECRETS, "ipam-system"), (CONFIG_MAPS, "kube-system")):
            with pytest.raises(Forbidden):
                await account.list(resource, namespace)
        with pytest.raises(Forbidden):
            await account.create(SECRETS, built(SECRETS, "planted"), "kube-system")


async def test_a_certificate_of_somebody_else_is_served_and_its_ca_is_told(
    shipped: Shipped, tmp_path: Path
) -> None:
    """V-225: the three files that cert-manager mounts. It is the last here: the others find our own."""
    authority, host = Authority(), f"{make.WEBHOOK}.{shipped.namespace}.svc"
    authority.issue("webhook", host).write(tmp_path, "tls")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    [port] = free(1)
    metrics = {"metrics_listen": f"127.0.0.1:{port}", "metrics_cert_dir": str(tmp_path)}
    async with shipped.running(webhook_cert_dir=str(tmp_path), **metrics):
        await eventually(partial(_trusts, shipped.client, authority.pem), LONG)
        assert "berth_leader 1.0" in await _read_over_https(port, authority, host)
        pool = Example(
            metal3_kinds.POOL, {"namePrefix": "r", "pools": [{"start": "10.0.0.9", "end": "10.0.0.1"}]}
        )
        with pytest.raises(Invalid, match=r"10\.0\.0\.9"):  # our webhook says so: the server trusts it
            await shipped.client.create(pool.resource, pool.body("default"), "default")


async def _read_over_https(port: int, authority: Authority, host: str) -> str:
    trust = ssl.create_default_context(cadata=authority.pem.decode())
    url = f"https://127.0.0.1:{port}/metrics"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=trust, server_hostname=host) as answer,
    ):
        return await answer.text()


async def _trusts(client: Client, bundle: bytes) -> bool:
    """Every configuration of ours has this CA and no other."""
    found = [
        base64.b64decode(hook["clientConfig"].get("caBundle", ""))
        for resource in (MUTATING, VALIDATING)
        for obj in (await client.list(resource)).items
        for hook in obj["webhooks"]
    ]
    return len(found) >= len(REGISTERED) - 1 and set(found) == {bundle}


async def _asks_us(client: Client, names: list[str]) -> bool:
    """The leader registers its webhooks when it leads; before that vitistack's Services are not filled in."""
    return {name for name, _ in await _registered(client)} >= set(names)


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
