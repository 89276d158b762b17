"""The kustomize bases and the clusterctl provider are what the command writes, and their tools read them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth import __version__
from berth import manifests as make
from berth.devcluster import Binaries
from berth.manifests import Options, installers

DEPLOY = Path(__file__).parents[1] / "deploy"
FILES = {
    f"{directory}/{name}": content
    for directory, files in (
        ("kustomize", installers.kustomize(Options())),
        ("clusterctl", installers.clusterctl(Options())),
    )
    for name, content in files.items()
}
IMAGE = "images.example/berth:1"
OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../operator, ../api]
images: [{name: berth, newName: images.example/berth, newTag: "1"}]
"""


@pytest.mark.parametrize("name", FILES)
def test_deploy_holds_what_the_command_writes(name: str) -> None:
    assert (DEPLOY / name).read_text() == FILES[name], "run: make manifests, then commit deploy/"


@pytest.mark.cluster
def test_an_overlay_of_both_bases_is_everything_with_another_image(tmp_path: Path) -> None:
    for name, content in installers.kustomize(Options()).items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay" / "kustomization.yaml").write_text(OVERLAY)
    built = _objects(_run("kubectl", "kustomize", str(tmp_path / "overlay")))
    expected = make.everything(Options(image=IMAGE))
    assert sorted(map(_key, built)) == sorted(map(_key, expected))
    assert all(obj in expected for obj in built)


@pytest.mark.cluster
def test_clusterctl_reads_the_provider(tmp_path: Path) -> None:
    release = tmp_path / "ipam-metal3" / f"v{__version__}"
    release.mkdir(parents=True)
    for name, content in installers.clusterctl(Options()).items():
        (release / name).write_text(content)
    provider = {
        "name": "metal3",
        "type": "IPAMProvider",
        "url": str(release / "ipam-components.yaml"),
    }
    config = tmp_path / "clusterctl.yaml"
    config.write_text(yaml.safe_dump({"providers": [provider]}))
    wanted = ("--ipam", f"metal3:v{__version__}", "--config", str(config))
    built = _objects(_run("clusterctl", "generate", "provider", *wanted))
    assert sorted(map(_key, built)) == sorted(map(_key, _objects(FILES["clusterctl/ipam-components.yaml"])))
    deployment = next(obj for obj in built if obj["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
    assert all(obj["metadata"]["labels"]["cluster.x-k8s.io/provider"] == "ipam-metal3" for obj in built)


def _run(program: str, *arguments: str) -> str:
    environment = os.environ | {"CLUSTERCTL_DISABLE_VERSIONCHECK": "true", "BERTH_IMAGE": IMAGE}
    command = [str(Binaries.locate([program])[program]), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _objects(text: str) -> list[dict[str, Any]]:
    return [obj for obj in yaml.safe_load_all(text) if obj]


def _key(obj: dict[str, Any]) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]
