"""Cluster API's own CRDs are taken from its Go module and accepted by the real API server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.cluster import Kubectl

from berth.devcluster.cache import BinaryCache
from berth.devcluster.crds import cluster_api_crds
from berth.errors import UserError


def test_what_was_not_prepared_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"Cluster API's CRD ipam.* is not there: run `berth devcluster prepare`"
    ):
        cluster_api_crds(cache=BinaryCache(tmp_path))


@pytest.mark.cluster
async def test_the_api_server_accepts_them(kubectl: Kubectl) -> None:
    files = [f"--filename={file}" for file in cluster_api_crds()]
    said = await kubectl("apply", "--server-side", *files)

    assert "ipaddressclaims.ipam.cluster.x-k8s.io serverside-applied" in said
    await kubectl("wait", "--for=condition=Established", "crd/ipaddressclaims.ipam.cluster.x-k8s.io")
