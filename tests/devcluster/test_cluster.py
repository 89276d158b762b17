"""The real control plane: it serves, survives what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cluster import Kubectl, KubectlFailed, make_namespace
from tests.support.processes import is_alive, mentioning, wait_until

from berth.devcluster import ClusterOptions, DevCluster, ports
from berth.errors import Unreachable, UserError

pytestmark = pytest.mark.cluster

OWNER = """
import asyncio
from berth.devcluster import DevCluster

async def main():
    async with DevCluster() as cluster:
        print(cluster.directory, cluster.etcd.pid, cluster.apiserver.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_kubectl_works_in_a_namespace_of_the_tests_own(namespace: str, kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "seen", "--from-literal=a=1", "-n", namespace)

    assert await kubectl("get", "cm", "seen", "-n", namespace, "-o", "jsonpath={.data.a}") == "1"


async def test_kubectl_raises_what_the_server_said(namespace: str, kubectl: Kubectl) -> None:
    with pytest.raises(KubectlFailed, match="not found"):
        await kubectl("get", "configmap", "absent", "-n", namespace)


async def test_services_get_addresses_of_both_families(namespace: str, kubectl: Kubectl) -> None:
    spec = {"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}
    meta = {"name": "both", "namespace": namespace}
    await kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}))
    given = await kubectl("get", "service", "both", "-n", namespace, "-o", "jsonpath={.spec.clusterIPs}")

    assert '"10.96.' in given
    assert '"fd00:10:96::' in given


async def test_roles_are_enforced(kubectl: Kubectl) -> None:
    with pytest.raises(KubectlFailed, match="forbidden"):
        await kubectl("get", "secrets", "--as=nobody", "--as-group=system:authenticated")


async def test_a_killed_api_server_comes_back_on_the_same_address(
    cluster: DevCluster, namespace: str, kubectl: Kubectl
) -> None:
    url, pid = cluster.api_url, cluster.apiserver.pid
    await kubectl("create", "configmap", "kept", "-n", namespace)
    await cluster.restart_apiserver(kill=True)

    assert cluster.api_url == url
    assert cluster.apiserver.pid != pid
    assert "kept" in await kubectl("get", "configmaps", "-n", namespace)


async def test_a_killed_etcd_keeps_what_was_written(
    cluster: DevCluster, namespace: str, kubectl: Kubectl
) -> None:
    await kubectl("create", "configmap", "kept", "-n", namespace)
    await cluster.restart_etcd(kill=True)

    assert "kept" in await kubectl("get", "configmaps", "-n", namespace)


async def test_a_restored_etcd_knows_nothing_of_what_came_after(
    cluster: DevCluster, namespace: str, kubectl: Kubectl
) -> None:
    await kubectl("create", "configmap", "before", "-n", namespace)
    saved = await cluster.save_etcd()
    await kubectl("create", "configmap", "after", "-n", namespace)
    await cluster.restore_etcd(saved)
    left = await kubectl("get", "configmaps", "-n", namespace)

    assert "before" in left
    assert "after" not in left


async def test_nothing_is_left_after_stop() -> None:
    async with DevCluster() as cluster:
        directory, port = cluster.directory, int(cluster.api_url.rpartition(":")[2])
        await cluster.start_controller_manager()
        assert len(mentioning(str(directory))) == 3

    assert mentioning(str(directory)) == []
    assert not directory.exists()
    assert ports.is_free(port)


async def test_two_stand_side_by_side_and_know_nothing_of_each_other(cluster: DevCluster) -> None:
    async with DevCluster() as other:
        name = await make_namespace(other)

        assert other.api_url != cluster.api_url
        assert (await other.request("GET", f"/api/v1/namespaces/{name}")).status == 200
        assert (await cluster.request("GET", f"/api/v1/namespaces/{name}")).status == 404


async def test_a_given_directory_is_found_again_with_its_data_and_address(tmp_path: Path) -> None:
    options = ClusterOptions(directory=tmp_path / "kept", durable=True)
    async with DevCluster(options) as first:
        url, name = first.api_url, await make_namespace(first)
        with pytest.raises(UserError, match="in use by a running dev cluster"):
            await DevCluster(options).start()
    async with DevCluster(options) as second:
        assert second.api_url == url
        assert (await second.request("GET", f"/api/v1/namespaces/{name}")).ok


async def test_a_lost_race_for_a_port_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes the API server's port after we have looked: first try fails, second is elsewhere."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        first, second = ports.free(4), ports.free(4)
        looks = iter([[first[0], first[1], other.getsockname()[1], first[3]], second])
        monkeypatch.setattr(ports, "free", lambda _: next(looks))
        async with DevCluster() as cluster:
            assert cluster.api_url.endswith(f":{second[2]}")


async def test_the_controller_manager_finishes_the_deletion_of_a_namespace(cluster: DevCluster) -> None:
    name = await make_namespace(cluster)
    manager = await cluster.start_controller_manager("namespace-controller,garbage-collector-controller")
    await cluster.request("DELETE", f"/api/v1/namespaces/{name}")

    async def gone() -> bool:
        return (await cluster.request("GET", f"/api/v1/namespaces/{name}")).status == 404

    await manager.ready(gone, 60)
    await manager.stop(5)


def test_what_a_killed_owner_started_dies_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        directory, *pids = owner.stdout.readline().split()
        assert all(is_alive(int(pid)) for pid in pids)
        os.kill(owner.pid, signal.SIGKILL)

    assert wait_until(lambda: mentioning(directory) == [], 60.0)


async def test_a_stopped_api_server_does_not_answer_and_a_started_one_does(cluster: DevCluster) -> None:
    await cluster.apiserver.kill()
    with pytest.raises(Unreachable):
        await cluster.request("GET", "/readyz")
    await cluster.start_apiserver()

    assert (await cluster.request("GET", "/readyz")).ok


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    options = ClusterOptions(directory=tmp_path / "cancelled")
    task = asyncio.ensure_future(DevCluster(options).start())
    assert await asyncio.to_thread(wait_until, lambda: mentioning(str(tmp_path)) != [])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert mentioning(str(tmp_path)) == []
