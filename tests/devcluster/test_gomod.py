"""The go.mod with which a foreign program is built."""

from __future__ import annotations

from typing import Any

from berth.devcluster.gomod import go_mod, link_flags
from berth.devcluster.programs import CLUSTER_API, ETCD, HELM, KUBERNETES


def _replace(path: str, by: str, version: str = "") -> dict[str, Any]:
    return {"Old": {"Path": path}, "New": {"Path": by} | ({"Version": version} if version else {})}


def test_neighbours_required_by_a_placeholder_get_their_published_version() -> None:
    upstream = {
        "Go": "1.24.0",
        "Require": [
            {"Path": "k8s.io/api", "Version": "v0.0.0"},
            {"Path": "k8s.io/utils", "Version": "v0.5.0"},
        ],
        "Replace": [_replace("k8s.io/api", "./staging/src/k8s.io/api")],
    }

    text = go_mod(KUBERNETES, upstream)

    assert "require k8s.io/kubernetes v1.34.4" in text
    assert "replace k8s.io/api => k8s.io/api v0.34.4" in text
    assert "k8s.io/utils" not in text


def test_neighbours_of_other_modules_have_the_modules_own_version() -> None:
    upstream = {
        "Go": "1.26.0",
        "Require": [{"Path": "sigs.k8s.io/cluster-api/api", "Version": "v0.0.0-00010101000000-000000000000"}],
        "Replace": [_replace("sigs.k8s.io/cluster-api/api", "./api")],
    }

    expected = "replace sigs.k8s.io/cluster-api/api => sigs.k8s.io/cluster-api/api v1.14.0"
    assert expected in go_mod(CLUSTER_API, upstream)


def test_a_neighbour_required_by_its_real_version_needs_no_replacement() -> None:
    upstream = {
        "Go": "1.24.0",
        "Require": [{"Path": "go.etcd.io/etcd/api/v3", "Version": "v3.6.5"}],
        "Replace": [
            _replace("go.etcd.io/etcd/api/v3", "../api"),
            _replace("go.etcd.io/etcd", "./FORBIDDEN_DEPENDENCY"),
        ],
    }

    assert "replace" not in go_mod(ETCD, upstream)


def test_a_fork_is_not_taken_over() -> None:
    upstream = {
        "Go": "1.24.0",
        "Require": [{"Path": "example.test/a", "Version": "v0.0.0"}],
        "Replace": [_replace("example.test/a", "example.test/fork", "v1.0.0")],
    }

    assert "replace" not in go_mod(KUBERNETES, upstream)


def test_the_language_version_and_its_settings_are_those_of_the_module() -> None:
    upstream = {"Go": "1.24.0", "Godebug": [{"Key": "default", "Value": "go1.24"}]}

    text = go_mod(KUBERNETES, upstream)

    assert "\ngo 1.24.0\n" in text
    assert "\ngodebug default=go1.24\n" in text


def test_programs_carry_the_version_they_were_built_from() -> None:
    assert "-X k8s.io/component-base/version.gitVersion=v1.34.4" in link_flags(KUBERNETES)
    assert "-X k8s.io/component-base/version.gitMinor=34" in link_flags(KUBERNETES)
    assert "-X helm.sh/helm/v3/internal/version.version=v3.19.5" in link_flags(HELM)
    assert link_flags(ETCD) == "-s -w"
