"""Every file of deploy/ is applied to a real API server, which checks every field, and stored as written."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.support.cluster import Kubectl
from tests.support.operator import admin, built
from tests.support.shipped import DEPLOY, NAMESPACES, apply

from berth.devcluster import Binaries, DevCluster

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
FOREIGN = ("metallb-system", "vip-allocator-operator")  # what the documents tell to have first
FILES = sorted(path.name for path in DEPLOY.glob("*.yaml"))
OURS = ("berth-system", "ipam-system", "charts")  # parts and charts bring no namespace
# With everything that needs no CRD of somebody else's.
CHARTS = {
    "berth-operator": (
        "dialects={metal3,kubipam,vip,vitistack}",
        "networkPolicy.egress[0].ports[0].port=6443",
        "webhook.certSecret=c",
    ),
    "berth-api": (
        *("replicas=2", "database.urlSecret=db", "pepperSecret=p", "identitiesSecret=i", "tls.certSecret=t"),
        *(
            "clusterTokenSecret=k",
            "networkPolicy.egress[0].ports[0].port=5432",
            "zones[0].name=z",
            "zones[0].ipv4={10.0.0.0/24}",
        ),
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def empty() -> AsyncIterator[DevCluster]:
    """To be thrown away: some of what is applied registers webhooks that nobody answers."""
    async with DevCluster() as own:
        async with admin(own) as client:
            for name in (*FOREIGN, *OURS):
                await client.create(NAMESPACES, built(NAMESPACES, name))
        yield own


@pytest.mark.parametrize("name", FILES)
async def test_the_server_takes_every_object_as_it_is_written(empty: DevCluster, name: str) -> None:
    await apply(empty, DEPLOY / name)
    stored = json.loads(await Kubectl(empty)("get", "-f", str(DEPLOY / name), "-o", "json"))
    wanted = [obj for obj in yaml.safe_load_all((DEPLOY / name).read_text()) if obj]
    found = {_key(obj): obj for obj in stored.get("items", [stored])}
    for obj in wanted:
        assert _missing(obj, found[_key(obj)]) == []


@pytest.mark.parametrize("base", ["operator", "api"])
async def test_the_kustomize_bases_are_taken_too(empty: DevCluster, base: str) -> None:
    await apply(empty, DEPLOY / "kustomize" / base, by="-k")


@pytest.mark.parametrize("chart", CHARTS)
async def test_what_helm_renders_is_taken_too(empty: DevCluster, tmp_path: Path, chart: str) -> None:
    values = [part for value in CHARTS[chart] for part in ("--set", value)]
    command = [str(Binaries.locate(["helm"])["helm"]), "template", "b", str(DEPLOY / "charts" / chart)]
    command += ["--namespace", "charts", "--include-crds", "--kube-version", "1.34.4", *values]
    rendered = tmp_path / "rendered.yaml"
    rendered.write_bytes(await asyncio.to_thread(subprocess.check_output, command, timeout=180))
    await apply(empty, rendered)


async def test_the_clusterctl_provider_is_taken_too(empty: DevCluster, tmp_path: Path) -> None:
    """Its image is a variable, which clusterctl fills in."""
    text = (DEPLOY / "clusterctl" / "ipam-components.yaml").read_text()
    filled = tmp_path / "components.yaml"
    filled.write_text(text.replace("${BERTH_IMAGE}", "registry.local/berth:1"))
    await apply(empty, filled)


def _key(obj: dict[str, Any]) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Paths of what was written and is not stored; the server may have added to it."""
    if isinstance(wanted, dict):
        there = found if isinstance(found, dict) else {}
        return [text for key in wanted for text in _missing(wanted[key], there.get(key), f"{path}.{key}")]
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return [path] if wanted else []
        pairs = enumerate(zip(wanted, found, strict=True))
        return [text for index, (one, other) in pairs for text in _missing(one, other, f"{path}[{index}]")]
    return [] if wanted == found or (not wanted and found is None) else [path]
