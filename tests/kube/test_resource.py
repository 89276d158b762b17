"""A kind → its URL path."""

from __future__ import annotations

import pytest

from berth.kube.resource import Resource

CONFIGMAP = Resource("", "v1", "ConfigMap", "configmaps")
CLAIM = Resource("ipam.metal3.io", "v1alpha1", "IPClaim", "ipclaims")
ROLE = Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (CONFIGMAP.path(), "/api/v1/configmaps"),
        (CONFIGMAP.path("default"), "/api/v1/namespaces/default/configmaps"),
        (CONFIGMAP.path("default", "a"), "/api/v1/namespaces/default/configmaps/a"),
        (
            CLAIM.path("default", "c-1", "status"),
            "/apis/ipam.metal3.io/v1alpha1/namespaces/default/ipclaims/c-1/status",
        ),
        (ROLE.path("", "system:node"), "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"),
    ],
)
def test_a_path_names_group_version_namespace_object_and_subresource(path: str, expected: str) -> None:
    assert path == expected


def test_a_cluster_scoped_kind_ignores_a_namespace() -> None:
    assert ROLE.path("default", "a") == "/apis/rbac.authorization.k8s.io/v1/clusterroles/a"


@pytest.mark.parametrize("name", ["../secrets/x", "a/b", "a?watch=1", "a b", "ü"])
def test_a_name_never_leaves_its_place_in_the_path(name: str) -> None:
    segment = CONFIGMAP.path("default", name).removeprefix("/api/v1/namespaces/default/configmaps/")
    assert not set(segment) & set("/? #")
    assert segment.isascii()


def test_api_version_and_key_leave_the_core_group_out() -> None:
    assert (CONFIGMAP.api_version, CONFIGMAP.key) == ("v1", "configmaps")
    assert (CLAIM.api_version, CLAIM.key) == ("ipam.metal3.io/v1alpha1", "ipclaims.ipam.metal3.io")
    assert str(CLAIM) == "ipclaims.ipam.metal3.io"
