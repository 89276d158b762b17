"""Commands in the documents run: a block of shell after `<!-- runs: shell -->` or `<!-- runs: cluster -->`.

Those of one page run in their order, in one empty directory beside `deploy` and the scripts, and those with a
cluster on a control plane of the page's own, which has the CRDs as an upstream system would have left them.
The pages about replacing one find its objects there too.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.operator import admin, crds_of, install
from tests.support.upstreams import EACH, leave_all

from berth.devcluster import Binaries, DevCluster
from berth.devcluster.crds import cluster_api_crds

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"^[ ]*<!-- runs: (?P<where>\w+) -->\n(?P<indent>[ ]*)```(?:sh|console)\n(?P<text>.*?)^[ ]*```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#]+)")
TOOLS = ("kubectl", "helm", "clusterctl")


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    where: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(page, line, found["where"], textwrap.dedent(found["text"]))


def _pages(where: str) -> list[Path]:
    return [page for page in PAGES if any(block.where == where for block in blocks(page))]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_every_mark_is_followed_by_a_block_and_names_a_place() -> None:
    for page in PAGES:
        found = list(blocks(page))
        assert len(found) == page.read_text().count("<!-- runs: "), f"{_name(page)}: a mark has no block"
        assert {block.where for block in found} <= {"shell", "cluster"}


@pytest.mark.parametrize("page", _pages("shell"), ids=_name)
def test_commands_that_need_no_cluster_work(page: Path, tmp_path: Path) -> None:
    _run_all(page, "shell", tmp_path, os.environ["PATH"])


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(600)  # many short processes: on a busy machine each takes seconds
@pytest.mark.parametrize("page", _pages("cluster"), ids=_name)
async def test_commands_on_a_cluster_work(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = ":".join(str(Path(Binaries.locate([tool])[tool]).parent) for tool in TOOLS)
    async with DevCluster() as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        monkeypatch.setenv("KUBECACHEDIR", str(tmp_path / "cache"))
        monkeypatch.setenv("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
        path = f"{tools}:{os.environ['PATH']}"
        crds = " ".join(f"-f {file}" for file in (ROOT / "deploy" / "crds.yaml", *cluster_api_crds()))
        _run(Block(page, 0, "", f"kubectl create {crds}"), tmp_path, path)
        _run(Block(page, 0, "", "kubectl create namespace metallb-system"), tmp_path, path)
        if page.parent.name == "replacing":
            async with admin(cluster) as client:
                await install(client, crds_of("metal3", "kubipam", "vip"))  # waits until they are served
                await leave_all(client)
        await asyncio.to_thread(_run_all, page, "cluster", tmp_path, path)
    if page.parent.name == "replacing":
        assert len((tmp_path / "before.jsonl").read_text().splitlines()) >= EACH, "nothing was compared"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    links = [found["path"] for found in LINK.finditer(page.read_text())]
    assert [link for link in links if not (page.parent / link).exists()] == []


def _run_all(page: Path, where: str, directory: Path, path: str) -> None:
    for name in ("deploy", "tools", "requirements-run.lock", "pyproject.toml"):
        (directory / name).symlink_to(ROOT / name)
    for block in blocks(page):
        if block.where == where:
            _run(block, directory, path)


def _run(block: Block, directory: Path, path: str) -> None:
    programs = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=directory,
        env={**os.environ, "PATH": f"{programs}:{path}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{block.place}\n{block.text}\n{done.stdout}\n{done.stderr}"
