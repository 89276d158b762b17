"""Contract 1.3 to 1.5: the kinds as users type them and clusterctl finds them."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.cluster import Kubectl
from tests.support.metal3 import A, World, pool
from tests.support.operator import eventually

from berth.dialects.metal3 import Metal3, crds
from berth.dialects.metal3.kinds import GROUP, POOL

MADE = {crd["spec"]["names"]["plural"]: crd for crd in Metal3().crds()}

GOOD = [
    "0.0.0.0",
    "255.255.255.255",
    "::",
    "::1",
    "1::",
    "2001:DB8::00ff",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7::",
]
BAD = [
    "",
    "256.1.1.1",
    "1.2.3",
    "01.2.3.4",
    "::ffff:1.2.3.4",
    "fe80::1%eth0",
    "10.0.0.1/24",
    " ::1",
    "1::2::3",
    "g::",
]


@pytest.mark.parametrize("text", GOOD)
def test_an_address_of_the_schema(text: str) -> None:
    """Contract 1.2."""
    assert re.match(crds.ADDRESS, text)


@pytest.mark.parametrize("text", BAD)
def test_no_address_of_the_schema(text: str) -> None:
    assert not re.match(crds.ADDRESS, text)


@pytest.mark.parametrize(
    "text", ["10.0.0.0/0", "10.0.0.1/32", "2001:db8::/64", "::/0", "::/128", "2001:db8::/08"]
)
def test_a_subnet_of_the_schema(text: str) -> None:
    assert re.match(crds.SUBNET, text)


@pytest.mark.parametrize("text", ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "::/129", "10.0.0.0/", "x/24"])
def test_no_subnet_of_the_schema(text: str) -> None:
    assert not re.match(crds.SUBNET, text)


@pytest.mark.parametrize(
    ("plural", "short", "category"),
    [("ippools", "ipp", "cluster-api"), ("ipclaims", "ipc", "cluster-api"), ("ipaddresses", "ipa", "metal3")],
)
def test_short_names_categories_and_contract_labels(plural: str, short: str, category: str) -> None:
    """Eight ways to type each kind; both contracts of Cluster API are declared."""
    crd = MADE[plural]
    singular = crd["spec"]["names"]["singular"]
    expected = {short, singular} | {
        f"{stem}{end}" for stem in ("m3", "metal3") for end in (short, singular, plural)
    }
    assert set(crd["spec"]["names"]["shortNames"]) == expected
    assert crd["spec"]["names"]["categories"] == [category]
    labels = crd["metadata"]["labels"]
    assert labels["cluster.x-k8s.io/v1beta1"] == labels["cluster.x-k8s.io/v1beta2"] == "v1alpha1"
    assert labels["cluster.x-k8s.io/provider"] == "ipam-metal3"
    assert "clusterctl.cluster.x-k8s.io" in labels
    (version,) = crd["spec"]["versions"]
    assert ("status" in version.get("subresources", {})) is (plural != "ipaddresses")
    assert "conversion" not in crd["spec"]


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
async def test_kubectl_shows_cluster_and_usage(world: World, kubectl: Kubectl) -> None:
    """X-30: additive columns; contract 1.5: the server took every short name."""
    await world.create(pool("pool", A))
    await world.ask("c1")

    async def counted() -> bool:
        lines = (await kubectl("get", "m3ipp", "-n", world.namespace)).splitlines()
        assert lines[0].split() == ["NAME", "CLUSTER", "TOTAL", "USED", "FREE", "AGE"]
        return lines[1].split()[1:4] == ["3", "1", "2"]

    await eventually(counted)
    shown = await kubectl("get", "ipa", "-n", world.namespace)
    assert shown.splitlines()[1].split()[:4] == ["a-10-0-0-10", "10.0.0.10", "pool", "c1"]
    stored = json.loads(await kubectl("get", "ippool", "pool", "-n", world.namespace, "-o", "json"))
    assert stored["status"]["conditions"][0]["type"] == "Ready"
    assert stored["apiVersion"] == POOL.api_version
    for line in (await kubectl("api-resources", f"--api-group={GROUP}", "--no-headers")).splitlines():
        plural, short, *_ = line.split()
        assert short.split(",") == MADE[plural]["spec"]["names"]["shortNames"]
