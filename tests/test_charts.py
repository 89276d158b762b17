"""The Helm charts pass helm's own checks and install what `berth manifests` installs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth import manifests as make
from berth.devcluster import Binaries
from berth.manifests import Options

CHARTS = Path(__file__).parents[1] / "deploy" / "charts"
OPERATOR, API = CHARTS / "berth-operator", CHARTS / "berth-api"
ALL = tuple(Options().dialects)

pytestmark = pytest.mark.cluster  # helm comes with the control plane's programs


def helm(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    program = Binaries.locate(["helm"])["helm"]
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=check, timeout=60)


def template(chart: Path, *values: str) -> dict[tuple[str, str], dict[str, Any]]:
    flags = [flag for value in values for flag in ("--set-json", value)]
    done = helm("template", "b", str(chart), "-n", "berth-system", "--kube-version", "1.34.4", *flags)
    objects = [obj for obj in yaml.safe_load_all(done.stdout) if obj]
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


@pytest.mark.parametrize("chart", [OPERATOR, API], ids=lambda chart: chart.name)
def test_helm_lint_finds_nothing(chart: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(chart)).stdout


@pytest.mark.parametrize("name", sorted(make.chart_files(Options())))
def test_generated_files_are_up_to_date(name: str) -> None:
    assert (OPERATOR / name).read_text() == make.chart_files(Options())[name], "run: make manifests"


def test_the_chart_grants_the_rights_the_manifests_grant() -> None:
    chosen = f"dialects={list(ALL)}".replace("'", '"')
    rendered = template(OPERATOR, chosen)
    for obj in make.rbac(Options()):
        other = rendered[obj["kind"], obj["metadata"]["name"]]
        assert other.get("rules") == obj.get("rules")
        assert other.get("roleRef") == obj.get("roleRef")


def test_the_chart_runs_the_operator_with_the_flags_of_the_manifests() -> None:
    chosen = f"dialects={list(ALL)}".replace("'", '"')
    rendered = template(OPERATOR, chosen)["Deployment", "berth-operator"]
    plain = next(obj for obj in make.operator(Options()) if obj["kind"] == "Deployment")
    ours, theirs = (obj["spec"]["template"]["spec"]["containers"][0] for obj in (plain, rendered))
    assert theirs["args"] == ours["args"]
    assert theirs["securityContext"] == ours["securityContext"]
    assert theirs["resources"] == ours["resources"]


def test_optional_objects_come_with_their_switches() -> None:
    plain = {kind for kind, _ in template(OPERATOR)}
    switches = [f"{key}.enabled=true" for key in ("networkPolicy", "serviceMonitor", "prometheusRule")]
    everything = {kind for kind, _ in template(OPERATOR, *switches)}
    assert everything - plain == {"NetworkPolicy", "ServiceMonitor", "PrometheusRule"}


def test_several_api_replicas_on_sqlite_are_refused_with_a_sentence() -> None:
    done = helm("template", "b", str(API), "--kube-version", "1.34.4", "--set", "replicas=2", check=False)
    assert done.returncode != 0
    assert "several replicas need PostgreSQL" in done.stderr


def test_zones_reach_the_api() -> None:
    rendered = template(API, 'zones=[{"name":"inet","ipv4":["10.0.0.0/24"]}]')
    stored = yaml.safe_load(rendered["ConfigMap", "berth-api-zones"]["data"]["zones.yaml"])
    assert stored == {"zones": [{"name": "inet", "ipv4": ["10.0.0.0/24"]}]}
    arguments = rendered["StatefulSet", "berth-api"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--zones=/zones/zones.yaml" in arguments
