"""The real control plane: it serves, survives what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import pytest
from tests.support.cluster import Kubectl, KubectlFailed

from berth.devcluster import DevCluster

pytestmark = pytest.mark.cluster


async def test_kubectl_works_in_a_namespace_of_the_tests_own(namespace: str, kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "seen", "--from-literal=a=1", "-n", namespace)

    assert await kubectl("get", "cm", "seen", "-n", namespace, "-o", "jsonpath={.data.a}") == "1"


async def test_kubectl_raises_what_the_server_said(namespace: str, kubectl: Kubectl) -> None:
    with pytest.raises(KubectlFailed, match="not found"):
        await kubectl("get", "configmap", "absent", "-n", namespace)


async def test_a_killed_api_server_comes_back_on_the_same_address(
    cluster: DevCluster, namespace: str, kubectl: Kubectl
) -> None:
    url = cluster.api_url
    await kubectl("create", "configmap", "kept", "-n", namespace)
    await cluster.restart_apiserver(kill=True)

    assert cluster.api_url == url
    assert "kept" in await kubectl("get", "configmaps", "-n", namespace)


async def test_a_killed_etcd_keeps_what_was_written(
    cluster: DevCluster, namespace: str, kubectl: Kubectl
) -> None:
    await kubectl("create", "configmap", "kept", "-n", namespace)
    await cluster.restart_etcd(kill=True)

    assert "kept" in await kubectl("get", "configmaps", "-n", namespace)
