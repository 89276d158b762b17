"""Commands in the documents run, or say why they are only shown (pages.py has the marks).

Those of one page run in their order in one shell, and those with a cluster on a control plane of the page's
own. It has what an upstream system would have left there: its CRDs, and for the pages about replacing it also
its objects. The pages about a dialect begin with nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from tests.docs import left
from tests.docs.pages import ELSEWHERE, LINK, MARK, PAGES, ROOT, blocks, name_of, pages, running
from tests.docs.session import run, run_page
from tests.support.operator import admin
from tests.support.upstreams import EACH

from berth.devcluster import Binaries, DevCluster
from berth.devcluster.crds import cluster_api_crds

TOOLS = ("kubectl", "helm", "clusterctl")


def test_every_block_of_commands_runs_or_says_why_not() -> None:
    unmarked = [
        block.place
        for page in PAGES
        if name_of(page) not in ELSEWHERE
        for block in blocks(page)
        if block.is_command and not block.kind
    ]
    assert unmarked == [], "mark each: <!-- runs: shell -->, <!-- runs: cluster --> or <!-- shown: reason -->"


def test_every_mark_stands_before_a_block_and_says_something() -> None:
    for page in PAGES:
        marked = [block for block in blocks(page) if block.kind]
        assert len(marked) == len(MARK.findall(page.read_text())), f"{name_of(page)}: a mark has no block"
        for block in marked:
            assert block.words.strip(), block.place
            assert block.kind == "shown" or block.words in ("shell", "cluster"), block.place


def test_a_page_that_another_test_runs_is_named_there() -> None:
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text()


@pytest.mark.parametrize("page", pages("shell"), ids=name_of)
def test_commands_that_need_no_cluster_work(page: Path, tmp_path: Path) -> None:
    if page.parent.name == "replacing":
        left.leave_records(tmp_path)
    run_page(running(page, "shell"), tmp_path, {})


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(600)  # many short processes: on a busy machine each takes seconds
@pytest.mark.parametrize("page", pages("cluster"), ids=name_of)
async def test_commands_on_a_cluster_work(page: Path, tmp_path: Path) -> None:
    replacing = page.parent.name == "replacing"
    async with DevCluster() as cluster:
        environment = _environment(cluster, tmp_path)
        if page.parent.name != "dialects":
            crds = " ".join(f"-f {file}" for file in (ROOT / "deploy" / "crds.yaml", *cluster_api_crds()))
            await asyncio.to_thread(run, f"kubectl create {crds}", tmp_path, environment)
            await asyncio.to_thread(run, "kubectl create namespace metallb-system", tmp_path, environment)
        if replacing:
            async with admin(cluster) as client:
                await left.leave_objects(client, page.stem)
            await asyncio.to_thread(run, left.leave_program(page.stem), tmp_path, environment)
        await asyncio.to_thread(run_page, running(page, "cluster"), tmp_path, environment)
    if replacing:
        before = (tmp_path / "before.jsonl").read_text().splitlines()
        assert len(before) >= EACH, "nothing was compared"
        assert all(json.loads(line)["address"] for line in before)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    links = [found["path"] for found in LINK.finditer(page.read_text())]
    assert [link for link in links if not (page.parent / link).exists()] == []


def _environment(cluster: DevCluster, home: Path) -> dict[str, str]:
    tools = ":".join(str(Path(Binaries.locate([tool])[tool]).parent) for tool in TOOLS)
    return {
        "KUBECONFIG": str(cluster.kubeconfig),
        "KUBECACHEDIR": str(home / "cache"),
        "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
        "PATH": f"{tools}:{os.environ['PATH']}",
    }
