"""The operator under exactly the rights that are shipped: every dialect works and nothing is forbidden."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from tests.support.operator import admin, crds_of, eventually, install, running

from berth import manifests as make
from berth.control.door import SECRET
from berth.control.keyring import Recipe, SharedKeyring
from berth.control.webhooks import Registration, Service
from berth.devcluster import DevCluster
from berth.errors import AlreadyExists, Forbidden
from berth.kube import auth
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.manifests import OPERATOR, Options

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
OPTIONS = Options(dialects=("metal3", "kubipam", "vip"))
RBAC = "rbac.authorization.k8s.io"
KINDS = {
    "Namespace": Resource("", "v1", "Namespace", "namespaces", False),
    "ServiceAccount": Resource("", "v1", "ServiceAccount", "serviceaccounts"),
    "ClusterRole": Resource(RBAC, "v1", "ClusterRole", "clusterroles", False),
    "ClusterRoleBinding": Resource(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    "Role": Resource(RBAC, "v1", "Role", "roles"),
    "RoleBinding": Resource(RBAC, "v1", "RoleBinding", "rolebindings"),
}
EXAMPLES = (
    {
        "resource": Resource("ipam.metal3.io", "v1alpha1", "IPPool", "ippools"),
        "spec": {"namePrefix": "r", "pools": [{"start": "10.0.0.1", "end": "10.0.0.9"}]},
    },
    {
        "resource": Resource("ipam.metal3.io", "v1alpha1", "IPClaim", "ipclaims"),
        "spec": {"pool": {"name": "rights"}},
    },
    {
        "resource": Resource("ipam.cluster.x-k8s.io", "v1beta2", "IPAddressClaim", "ipaddressclaims"),
        "spec": {"poolRef": {"apiGroup": "ipam.metal3.io", "kind": "IPPool", "name": "rights"}},
    },
    {
        "resource": Resource("ipam.mandelsoft.org", "v1alpha1", "IPAMRange", "ipamranges"),
        "spec": {"ranges": ["192.168.7.0/24"]},
    },
    {
        "resource": Resource("ipam.mandelsoft.org", "v1alpha1", "IPAMRequest", "ipamrequests"),
        "spec": {"ipam": {"name": "rights"}},
    },
    {
        "resource": Resource("paas.org", "v1", "IPGroup", "ipgroups", False),
        "spec": {"segment": "172.30.9.0/29", "excludedIPs": []},
    },
    {
        "resource": Resource("", "v1", "Service", "services"),
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    },
)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster() -> AsyncIterator[DevCluster]:
    """Of its own: what others left terminating is forbidden to write to, and our webhooks stay registered."""
    async with DevCluster() as own:
        yield own


@pytest_asyncio.fixture(loop_scope="session")
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    async with admin(cluster) as administrator:
        yield administrator


@pytest_asyncio.fixture(loop_scope="session")
async def kubeconfig(cluster: DevCluster, client: Client, tmp_path: Path) -> Path:
    """The shipped account's own credentials: its token, and nothing of the administrator's."""
    await install(client, crds_of(*OPTIONS.dialects))
    for obj in [*make._namespace(OPTIONS), *make.rbac(OPTIONS)]:
        resource = KINDS[obj["kind"]]
        namespace = OPTIONS.namespace if resource.namespaced else ""
        with suppress(AlreadyExists):
            await client.create(resource, obj, namespace)
    path = f"/api/v1/namespaces/{OPTIONS.namespace}/serviceaccounts/{OPERATOR}/token"
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await client.raw("POST", path, body=wanted))["status"]["token"]
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    content["users"] = [{"name": user["name"], "user": {"token": token}} for user in content["users"]]
    found = tmp_path / "account.yaml"
    found.write_text(yaml.safe_dump(content))
    return found


async def test_every_dialect_works_and_nothing_is_forbidden(
    cluster: DevCluster, client: Client, kubeconfig: Path, namespace: str
) -> None:
    shipped: dict[str, Any] = {"kubeconfig": kubeconfig, "leader_elect": True}
    shipped["lease_namespace"] = OPTIONS.namespace
    async with running(cluster, dialects=OPTIONS.dialects, **shipped) as operator:
        for example in EXAMPLES:
            await _create(client, example, namespace)
        for example in EXAMPLES:
            await eventually(partial(_is_served, client, example, namespace), 20)
        for example in reversed(EXAMPLES):
            resource: Any = example["resource"]
            await client.delete(resource, "rights", namespace if resource.namespaced else "")
        for example in EXAMPLES:
            await eventually(partial(_is_gone, client, example, namespace), 20)
        async with aiohttp.ClientSession() as session:
            answer = await session.get(f"http://127.0.0.1:{operator.listening.metrics}/metrics")
            series = await answer.text()
    assert 'code="403"' not in series, [line for line in series.splitlines() if 'code="403"' in line]
    assert 'code="201"' in series


async def test_certificate_and_webhooks_are_within_the_rights(cluster: DevCluster, kubeconfig: Path) -> None:
    async with Client(auth.load(kubeconfig)) as account:
        ring = SharedKeyring(account, OPTIONS.namespace, SECRET, Recipe(("berth-webhook.berth-system.svc",)))
        material = await ring.load()
        for plan in make._plans(OPTIONS):
            assert isinstance(plan.target, Service)
            registration = Registration(account, plan)
            await registration.sync(material.bundle)
            assert await registration.sync(material.bundle) == 0


async def test_other_secrets_are_out_of_reach(kubeconfig: Path) -> None:
    secrets = Resource("", "v1", "Secret", "secrets")
    async with Client(auth.load(kubeconfig)) as account:
        with pytest.raises(Forbidden):
            await account.list(secrets)
        with pytest.raises(Forbidden):
            await account.get(secrets, "anything", "kube-system")


async def _create(client: Client, example: dict[str, Any], namespace: str) -> None:
    resource: Resource = example["resource"]
    meta = {"name": "rights", **({"namespace": namespace} if resource.namespaced else {})}
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": meta,
        "spec": example["spec"],
    }
    await client.create(resource, body, namespace if resource.namespaced else "")


async def _is_served(client: Client, example: dict[str, Any], namespace: str) -> bool:
    resource: Resource = example["resource"]
    found = await client.get(resource, "rights", namespace if resource.namespaced else "")
    status = found.get("status") or {}
    if resource.kind in ("IPPool", "IPAMRange", "IPGroup"):
        return True
    ingress = (status.get("loadBalancer") or {}).get("ingress")
    return bool(status.get("address") or status.get("addressRef") or status.get("cidr") or ingress)


async def _is_gone(client: Client, example: dict[str, Any], namespace: str) -> bool:
    resource: Resource = example["resource"]
    items = (await client.list(resource, namespace if resource.namespaced else "")).items
    return not any(item["metadata"]["name"] == "rights" for item in items)
