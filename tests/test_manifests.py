"""deploy/ holds what `berth manifests` prints, and it is installable YAML with the least of rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from berth import manifests as make
from berth.manifests import Options

Object = dict[str, Any]
DEPLOY = Path(__file__).parents[1] / "deploy"
EVERY = Options(dialects=make.EVERY)
VIP = Options(namespace="vip-allocator-operator", dialects=("vip",), make_namespace=False)
FILES = {
    "crds.yaml": make.crds(Options()),
    "rbac.yaml": make.rbac(Options()),
    "webhooks.yaml": make.webhooks(Options()),
    "operator.yaml": make.operator(Options()),
    "api.yaml": make.api(Options()),
    "all.yaml": make.everything(EVERY),
    "bundle.yaml": make.bundle(VIP),
    **{f"{name}.yaml": make.bundle(Options(dialects=(name,))) for name in make.EVERY},
}
METALLB = "metallb-system"
BEFORE = {"bundle.yaml": {VIP.namespace}, "vitistack.yaml": {METALLB}, "all.yaml": {METALLB}}
CHOICES = [(name,) for name in make.EVERY] + [make.NEED_NOTHING, make.EVERY]


def roles(options: Options) -> list[Object]:
    return [obj for obj in make.rbac(options) if obj["kind"] in ("ClusterRole", "Role")]


@pytest.mark.parametrize("name", FILES)
def test_deploy_holds_what_the_command_prints(name: str) -> None:
    assert (DEPLOY / name).read_text() == make.render(FILES[name]), (
        f"run: make manifests, then commit deploy/{name}"
    )


@pytest.mark.parametrize("name", [name for name in FILES if name not in ("rbac.yaml", "webhooks.yaml")])
def test_a_file_brings_its_namespaces_or_the_document_names_them(name: str) -> None:
    present = {"default", *BEFORE.get(name, ())}
    for obj in FILES[name]:
        if obj["kind"] == "Namespace":
            present.add(obj["metadata"]["name"])
        assert obj["metadata"].get("namespace", "default") in present, f"{obj['kind']} comes too early"


def test_metallbs_namespace_is_never_ours_to_delete() -> None:
    made = {obj["metadata"]["name"] for obj in make.everything(EVERY) if obj["kind"] == "Namespace"}
    assert made == {"berth-system", "ipam-system"}


@pytest.mark.parametrize("dialects", CHOICES, ids=",".join)
def test_no_rule_has_a_wildcard_or_an_empty_list_of_names(dialects: tuple[str, ...]) -> None:
    """To the API server no names are all names."""
    for rule in (rule for role in roles(Options(dialects=dialects)) for rule in role["rules"]):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
        assert rule.get("resourceNames", ["one"])


def test_secrets_are_readable_by_name_and_only_in_the_operators_own_namespace() -> None:
    for role in roles(Options()):
        for rule in role["rules"]:
            if "secrets" in rule["resources"] and set(rule["verbs"]) & {"get", "update"}:
                assert role["kind"] == "Role"
                assert rule["resourceNames"]


def test_secrets_are_never_listed_or_watched() -> None:
    """vitistack reads those that Services name, wherever they are, and its own in ipam-system."""
    for rule in (rule for role in roles(EVERY) for rule in role["rules"]):
        if "secrets" in rule["resources"]:
            assert not set(rule["verbs"]) & {"list", "watch"}


def test_the_address_of_the_api_is_the_one_beside_the_operator_or_the_one_given() -> None:
    beside = Options(dialects=("vitistack",), namespace="here")
    assert _flag(beside, "--api-url") == "http://berth-api.here.svc:3000/v2"
    assert _flag(Options(dialects=("vitistack",), api_url="https://i/v2"), "--api-url") == "https://i/v2"
    assert _flag(Options(), "--api-url") is None


def _flag(options: Options, name: str) -> str | None:
    deployment = next(obj for obj in make.operator(options) if obj["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return dict(argument.partition("=")[::2] for argument in arguments).get(name)


def test_the_plain_files_have_network_policies() -> None:
    """The API's lets in its own namespace, where the operator is; the operator's knows no API servers."""
    found = {o["metadata"]["name"]: o["spec"] for o in make.everything(EVERY) if o["kind"] == "NetworkPolicy"}
    assert found["berth-api"]["ingress"] == [{"ports": [{"port": "http"}], "from": [{"podSelector": {}}]}]
    assert [rule["ports"] for rule in found["berth-operator"]["ingress"]] == [
        [{"port": "webhook"}],
        [{"port": "health"}],
    ]
    for name, spec in found.items():
        assert spec["podSelector"] == {"matchLabels": Options().labels(name)}


# What the SCC restricted-v2 of OpenShift 4.11 and later takes from a pod, field by field.
SCC_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"}
SCC_VOLUMES |= {"projected", "secret"}
PLATFORMS_OWN = {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "seLinuxOptions"}


@pytest.mark.parametrize("part", [make.operator, make.api], ids=["operator", "api"])
@pytest.mark.parametrize("cert_manager", [False, True])
def test_what_is_made_for_openshift_keeps_the_rules_of_restricted_v2(part: Any, cert_manager: bool) -> None:
    objects = part(Options(dialects=make.EVERY, openshift=True, cert_manager=cert_manager))
    [pod] = [obj["spec"]["template"]["spec"] for obj in objects if "template" in obj.get("spec", {})]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    for volume in pod.get("volumes", ()):
        assert set(volume) - {"name"} <= SCC_VOLUMES
    for container in pod["containers"]:
        rights = container["securityContext"]
        assert rights["allowPrivilegeEscalation"] is False
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert rights["readOnlyRootFilesystem"] is True
        assert not rights.get("privileged")
        assert not any("hostPort" in port for port in container["ports"])
        assert not PLATFORMS_OWN & set(rights)
    assert not PLATFORMS_OWN & set(pod["securityContext"])


def test_the_image_writes_where_any_user_of_group_0_may() -> None:
    """OpenShift runs it as a user of its own choice, always in group 0."""
    lines = (DEPLOY.parent / "Containerfile").read_text()
    assert "COPY --from=build --chown=65532:0 /data /data" in lines
    assert "chmod 0770 /data" in lines
    assert "HOME=/data" in lines


def test_the_vip_bundle_has_one_image_and_leaves_the_namespace_to_the_user() -> None:
    objects: list[Object] = list(yaml.safe_load_all((DEPLOY / "bundle.yaml").read_text()))
    images = [
        container["image"]
        for obj in objects
        if obj["kind"] == "Deployment"
        for container in obj["spec"]["template"]["spec"]["containers"]
    ]
    assert len(images) == 1
    assert "Namespace" not in {obj["kind"] for obj in objects}
