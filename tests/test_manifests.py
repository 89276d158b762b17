"""deploy/ holds what `berth manifests` prints, and it is installable YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from berth import manifests as make
from berth.manifests import Options

DEPLOY = Path(__file__).parents[1] / "deploy"
VIP = Options(namespace="vip-allocator-operator", dialects=("vip",), make_namespace=False)
FILES = {
    "crds.yaml": make.crds(Options()),
    "rbac.yaml": make.rbac(Options()),
    "webhooks.yaml": make.webhooks(Options()),
    "operator.yaml": make.operator(Options()),
    "api.yaml": make.api(Options()),
    "all.yaml": make.everything(Options()),
    "bundle.yaml": make.bundle(VIP),
}


@pytest.mark.parametrize("name", FILES)
def test_deploy_holds_what_the_command_prints(name: str) -> None:
    assert (DEPLOY / name).read_text() == make.render(FILES[name]), (
        f"run: make manifests, then commit deploy/{name}"
    )


def test_no_rule_has_a_wildcard() -> None:
    roles = [obj for obj in make.rbac(Options()) if obj["kind"] in ("ClusterRole", "Role")]
    for rule in (rule for role in roles for rule in role["rules"]):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]


def test_secrets_are_readable_by_name_and_only_in_the_operators_own_namespace() -> None:
    for role in make.rbac(Options()):
        for rule in role.get("rules", []):
            if "secrets" in rule["resources"] and set(rule["verbs"]) & {"get", "update"}:
                assert role["kind"] == "Role"
                assert rule["resourceNames"]


def test_the_vip_bundle_has_one_image_and_leaves_the_namespace_to_the_user() -> None:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "bundle.yaml").read_text()))
    images = [
        container["image"]
        for obj in objects
        if obj["kind"] == "Deployment"
        for container in obj["spec"]["template"]["spec"]["containers"]
    ]
    assert len(images) == 1
    assert "Namespace" not in {obj["kind"] for obj in objects}
