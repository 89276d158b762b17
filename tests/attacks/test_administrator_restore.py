"""A cluster is lost, and its administrator brings it back from files alone; somebody uses the moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import Kubectl, KubectlFailed, drop_namespace, make_namespace
from tests.support.kubipam import World as RangeWorld
from tests.support.operator import admin, built, eventually, install, running
from tests.support.restoring import export, restore, wipe
from tests.support.vip import World as GroupWorld

from berth import manifests as make
from berth.devcluster import DevCluster
from berth.devcluster.ports import free
from berth.dialects.kubipam import crds as kubipam_crds
from berth.dialects.kubipam.kinds import CIDR, RANGE, REQUEST
from berth.dialects.vip import admit, kinds
from berth.dialects.vip import crds as vip_crds
from berth.errors import AlreadyExists
from berth.kube.client import Client
from berth.manifests.options import OPERATOR, Options

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]
Guard = Callable[[], Awaitable[object]]
RANGES = (RANGE, REQUEST)
BOSS = ("--as=boss", "--as-group=system:masters")
KEEPER = ("--as=keeper", "--as-group=berth:restorers", "--as-group=system:masters")
GROUPS = (kinds.SERVICE, kinds.IP, kinds.IPGROUP)


@pytest_asyncio.fixture(loop_scope="session")
async def client(cluster: DevCluster) -> AsyncIterator[Client]:
    async with admin(cluster) as client:
        await install(client, (*kubipam_crds.crds(), *vip_crds.crds()))
        yield client


@pytest_asyncio.fixture(
    loop_scope="session",
    params=["admission webhook", "ValidatingAdmissionPolicy"],
    ids=["webhooks", "policies"],
)
async def guard(request: pytest.FixtureRequest, client: Client, kubectl: Kubectl) -> AsyncIterator[Guard]:
    """Waits until an IP object that is nobody's lease is refused by the webhook; or by the shipped policies,
    which are there beside it then, with this operator's account in them."""

    async def is_closed() -> bool:
        try:
            await restore(kubectl, [built(kinds.IP, "10.9.0.15")], "--dry-run=server", *BOSS)
        except KubectlFailed as failed:
            return request.param in str(failed) and "cannot create ip objects" in str(failed)
        return False

    shipped = Options(dialects=("vip",))
    account = f"system:serviceaccount:{shipped.namespace}:{OPERATOR}"
    text = make.render(make.policies(shipped)).replace(account, await admit.WhoAmI(client)())
    if request.param == "ValidatingAdmissionPolicy":
        await kubectl("apply", "-f", "-", stdin=text)
    yield partial(eventually, is_closed)
    await kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


@pytest_asyncio.fixture(loop_scope="session")
async def ranges(cluster: DevCluster, client: Client) -> AsyncIterator[RangeWorld]:
    world = RangeWorld(client, await make_namespace(cluster))
    yield world
    await wipe(client, RANGES, world.namespace)
    await drop_namespace(cluster, world.namespace)


@pytest_asyncio.fixture(loop_scope="session")
async def groups(cluster: DevCluster, client: Client) -> AsyncIterator[GroupWorld]:
    world = GroupWorld(client, await make_namespace(cluster))
    yield world
    await wipe(client, GROUPS, world.namespace)
    await drop_namespace(cluster, world.namespace)


async def test_a_neighbour_who_makes_up_an_annotation_gets_nothing_that_waits_for_another(
    cluster: DevCluster, kubectl: Kubectl, ranges: RangeWorld
) -> None:
    """A tenant who knows an address of the lost cluster claims to have had it, before its owner is back."""
    async with running(cluster, crds=(), dialects=("kubipam",)):
        await ranges.range("10.0.0.0/30")
        had = await ranges.granted("victim")
        await eventually(partial(_remembers, ranges))
    files = await export(kubectl, RANGES, ranges.namespace)
    await wipe(ranges.client, RANGES, ranges.namespace)
    thief = await make_namespace(cluster)
    async with running(cluster, crds=(), dialects=("kubipam",)):
        await restore(kubectl, [one for one in files if one["kind"] == "IPAMRange"])
        spec = {"ipam": {"name": "p", "namespace": ranges.namespace}}
        forged = built(REQUEST, "thief", spec, annotations={CIDR: had})
        await ranges.client.create(REQUEST, forged, thief)
        await eventually(partial(_has_another, ranges.client, thief, had))
        await restore(kubectl, [one for one in files if one["kind"] == "IPAMRequest"])
        await ranges.becomes("victim", cidr=had)
    await wipe(ranges.client, (REQUEST,), thief)


async def _remembers(world: RangeWorld) -> bool:
    return world.namespace in str((await world.get_range())["metadata"].get("annotations"))


async def _has_another(client: Client, namespace: str, had: str) -> bool:
    status = (await client.get(REQUEST, "thief", namespace)).get("status") or {}
    assert status.get("cidr") != had
    return bool(status.get("cidr"))


async def test_services_and_their_addresses_come_back_from_files(
    cluster: DevCluster, kubectl: Kubectl, groups: GroupWorld, guard: Guard
) -> None:
    """Who may restore brings back IP objects past the webhook, long before their Services; none is collected,
    and no Service gets another address, not even the one that comes before its IP object."""
    url = f"https://127.0.0.1:{free(1)[0]}"
    async with running(cluster, crds=(), dialects=("vip",), webhook_url=url):
        await groups.group("g", "10.9.0.0/28")
        await groups.served("first")
        had = {name: await groups.served(name) for name in ("a", "b")}
        await groups.delete("first")
        files = {
            (one["kind"], one["metadata"]["name"]): one
            for one in await export(kubectl, GROUPS, groups.namespace)
        }
    await wipe(groups.client, GROUPS, groups.namespace)
    async with running(cluster, crds=(), dialects=("vip",), webhook_url=url):
        await guard()
        address = had["a"][0]
        await restore(kubectl, [files["IP", address]], *KEEPER)
        await restore(kubectl, [files["Service", "b"], files["IPGroup", "g"]])
        await groups.addresses("b", *had["b"])
        await groups.served("new", "10.9.0.0")
        await restore(kubectl, [files["Service", "a"]])
        await groups.addresses("a", *had["a"])


async def test_who_may_not_restore_brings_no_ip_object_back(
    cluster: DevCluster, kubectl: Kubectl, groups: GroupWorld, guard: Guard
) -> None:
    """A tenant who may create IP objects by RBAC makes himself one with an owner; and who may `restore` them
    edits what makes no lease, as Velero does afterwards, and tries to edit more and to delete one."""
    url = f"https://127.0.0.1:{free(1)[0]}"
    await _may(groups.client, "tenant", ["create", "get", "patch", "delete"])
    await _may(groups.client, "velero", ["create", "get", "patch", "delete", "restore"])
    lease = built(kinds.IP, "10.9.0.9", annotations={kinds.OWNER: f"{groups.namespace}/web"})
    async with running(cluster, crds=(), dialects=("vip",), webhook_url=url):
        await guard()
        with pytest.raises(KubectlFailed, match="user tenant cannot create ip objects"):
            await restore(kubectl, [lease], "--as=tenant")
        await restore(kubectl, [lease], "--as=velero")
        managed = '{"metadata": {"managedFields": [{}]}}'
        await kubectl("patch", "ips.paas.org", "10.9.0.9", "--type=merge", "-p", managed, "--as=velero")
        with pytest.raises(KubectlFailed, match="user velero cannot update ip objects"):
            await kubectl(
                "annotate", "ips.paas.org", "10.9.0.9", f"{kinds.OWNER}=x/y", "--overwrite", "--as=velero"
            )
        with pytest.raises(KubectlFailed, match="user velero cannot delete ip objects"):
            await kubectl("delete", "ips.paas.org", "10.9.0.9", "--as=velero")


async def _may(client: Client, user: str, verbs: list[str]) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1"
    name = f"attack-{user}"
    rules = [{"apiGroups": [kinds.GROUP], "resources": ["ips"], "verbs": verbs}]
    role: Object = {"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding: Object = {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    for plural, body in (("clusterroles", role), ("clusterrolebindings", binding)):
        with suppress(AlreadyExists):  # made for the other guard
            await client.raw(
                "POST", f"{path}/{plural}", body={"apiVersion": "rbac.authorization.k8s.io/v1", **body}
            )
