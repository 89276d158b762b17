"""Section D of the contract: who may write what, in upstream's own words, through the real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import drop_namespace, make_namespace
from tests.support.operator import Operator, built, eventually, running
from tests.support.vip import G, World

from berth.control.review import User
from berth.devcluster import DevCluster
from berth.devcluster.ports import free
from berth.dialects.vip import admit, kinds
from berth.dialects.vip.crds import crds
from berth.errors import AlreadyExists, NotFound, StatusError
from berth.kube import auth
from berth.kube.client import Client

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
ALICE = {"Impersonate-User": "alice", "Impersonate-Group": "system:masters"}
DEPRECATED = "VirtualIP resource is deprecated, use a service with type LoadBalancer instead"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def operator(cluster: DevCluster) -> AsyncIterator[Operator]:
    url = f"https://127.0.0.1:{free(1)[0]}"
    async with running(cluster, crds=crds(), dialects=("vip",), webhook_url=url) as operator:
        yield operator


@pytest_asyncio.fixture(loop_scope="session")
async def world(cluster: DevCluster, operator: Operator) -> AsyncIterator[World]:
    world = World(operator.client, await make_namespace(cluster))
    yield world
    await world.clear()
    await drop_namespace(cluster, world.namespace)


async def _operators_name(world: World) -> str:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await world.client.raw("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    return str(answer["status"]["userInfo"]["username"])


async def _denied(client: Client, method: str, path: str, body: Any = None) -> str:
    kind = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    with pytest.raises(StatusError) as raised:
        await client.raw(method, path, body=body, headers={**ALICE, **kind})
    assert raised.value.code == 403
    return raised.value.message.partition("denied the request: ")[2]


async def test_only_the_operator_writes_ip_objects(world: World) -> None:
    """P-051, P-052; and the operator itself may, or nobody would be served."""
    await world.group(*G)
    await world.served("web", "1.1.1.1")
    me = await _operators_name(world)
    rest = f"ip objects, only {me} is allowed"
    ip = built(kinds.IP, "1.1.1.9")
    assert await _denied(world.client, "POST", kinds.IP.path(), ip) == f"user alice cannot create {rest}"
    path = kinds.IP.path(name="1.1.1.1")
    change = {"metadata": {"labels": {"ipgroup": "mine"}}}
    assert await _denied(world.client, "PATCH", path, change) == f"user alice cannot update {rest}"
    assert await _denied(world.client, "DELETE", path) == f"user alice cannot delete {rest}"


async def test_no_new_virtual_ips(world: World) -> None:
    """P-053: not even for the operator's own user."""
    with pytest.raises(StatusError) as raised:
        await world.vip("vip", "web")
    assert raised.value.message.endswith(f"denied the request: {DEPRECATED}")


@pytest_asyncio.fixture(loop_scope="session")
async def vip(cluster: DevCluster, world: World) -> str:
    """A VirtualIP from before the webhook: its registration is away for the moment."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/berth-vip"
    saved = await world.client.raw("GET", path)

    async def made() -> bool:
        with suppress(NotFound):  # the operator may register it again meanwhile
            await world.client.raw("DELETE", path)
        await world.vip("vip", "web", "5.5.5.5")
        return True

    await eventually(made)
    del saved["metadata"]["resourceVersion"], saved["metadata"]["uid"]
    with suppress(AlreadyExists):
        await world.client.raw("POST", path.rpartition("/")[0], body=saved)

    async def guarded() -> bool:
        try:
            body = built(kinds.VIRTUAL_IP, "probe", {"service": "web"})
            await world.client.create(kinds.VIRTUAL_IP, body, world.namespace, dry_run=True)
        except StatusError as error:
            return DEPRECATED in error.message
        return False

    await eventually(guarded)
    return "vip"


async def _refused(world: World, change: dict[str, Any]) -> str:
    path = kinds.VIRTUAL_IP.path(world.namespace, "vip")
    return await _denied(world.client, "PATCH", path, change)


def _annotation(value: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {kinds.MIGRATE: value}}}


async def test_the_rules_of_a_virtual_ip(world: World, vip: str) -> None:
    """P-054, P-055, P-056, P-057, P-058, P-059, on one object from its first edit to its deletion."""
    await world.vip_state(vip, "Error")
    assert await _refused(world, {"spec": {"ip": "5.5.5.6"}}) == ".spec.ip is immutable"
    await world.client.patch(kinds.VIRTUAL_IP, vip, {"spec": {"service": "other"}}, world.namespace)
    assert await _refused(world, _annotation("")) == "not valid VirtualIP can not be migrated"
    await world.mapping("gsm-a", "5.5.5.0/24")
    await world.service("other", "ClusterIP")
    await world.vip_state(vip, "Valid")
    await world.client.patch(kinds.VIRTUAL_IP, vip, _annotation(""), world.namespace)
    assert await _refused(world, _annotation(None)) == "VirtualIP migration can not be stopped"
    moved = {"spec": {"service": "third"}}
    assert await _refused(world, moved) == "can not change service once migration has begun"
    await world.client.patch(kinds.VIRTUAL_IP, vip, _annotation("again"), world.namespace)
    await world.client.delete(kinds.VIRTUAL_IP, vip, world.namespace)


async def test_who_may_restore_is_asked_once_in_a_while_and_not_without_end(
    cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any pod that reaches the port can make up reviews of restores."""
    monkeypatch.setattr(admit, "MOST_KNOWN", 10)
    asked: list[int] = []
    now = 0.0
    async with Client(
        auth.load(cluster.kubeconfig), observe=lambda verb, code, seconds: asked.append(code)
    ) as client:
        may_restore = admit.MayRestore(client, clock=lambda: now)
        eve, boss = User("eve"), User("boss", groups=("system:masters",))
        for _ in range(3):
            assert not await may_restore(eve, kinds.IP)
            assert await may_restore(boss, kinds.IP)
            assert await may_restore(User("rita", groups=(admit.RESTORERS,)), kinds.IP)
        assert len(asked) == 2
        now += admit.KNOWN_SECONDS
        assert not await may_restore(eve, kinds.IP)
        assert len(asked) == 3
        for number in range(30):
            await may_restore(User(f"made-up-{number}"), kinds.IP)
        assert len(may_restore._known) == 10
