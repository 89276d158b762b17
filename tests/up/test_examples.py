"""Examples get what they take for granted; what cannot be applied is left out with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.operator import admin, crds_of, install

from berth.devcluster import DevCluster
from berth.up import examples
from berth.up.examples import Applying

POOL = """
apiVersion: ipam.metal3.io/v1alpha1
kind: IPPool
metadata: {name: pool1, namespace: %s}
spec: {clusterName: cluster1, namePrefix: p, pools: [{start: 10.0.0.1, end: 10.0.0.9}]}
---
# a document with nothing in it
---
apiVersion: example.org/v1
kind: Unheard
metadata: {name: of}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, ports: [{port: 80}]}
"""


def _write(top: Path, dialect: str, text: str) -> None:
    (top / dialect).mkdir()
    (top / dialect / "example.yaml").write_text(text)


def test_every_shipped_example_can_be_read() -> None:
    assert all(
        {"apiVersion", "kind", "metadata"} <= set(obj) for obj in examples.objects(examples.directory())
    )


def test_a_pool_gets_the_cluster_it_names_unless_an_example_brings_it(tmp_path: Path) -> None:
    _write(tmp_path, "metal3", POOL % "default")
    kinds = [obj["kind"] for obj in examples.objects(tmp_path)]
    assert kinds == ["Cluster", "IPPool", "Unheard"]
    (tmp_path / "metal3" / "cluster.yaml").write_text("{kind: Cluster, metadata: {name: cluster1}}")
    assert [obj["kind"] for obj in examples.objects(tmp_path)].count("Cluster") == 1


def test_services_of_vip_say_whose_they_are_where_all_dialects_run(tmp_path: Path) -> None:
    _write(tmp_path, "vip", SERVICE)
    _write(tmp_path, "vitistack", SERVICE)
    classes = [obj["spec"].get("loadBalancerClass") for obj in examples.objects(tmp_path)]
    assert classes == ["paas.org/vip", None]


def test_what_only_an_old_cluster_has_comes_before_the_webhooks_that_refuse_it() -> None:
    old, rest = examples.sorted_out(examples.objects(examples.directory()))
    assert {obj["kind"] for obj in old} == {"GroupSegmentMapping", "VirtualIP"}
    assert {"IPGroup", "Service"} <= {obj["kind"] for obj in rest}


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
async def test_a_kind_that_is_not_installed_is_left_out_with_a_sentence(
    cluster: DevCluster, tmp_path: Path
) -> None:
    _write(tmp_path, "metal3", POOL % "up-examples")
    async with admin(cluster) as client:
        await install(client, crds_of("metal3"))
        for _ in range(2):
            left_out = await Applying(client).all(examples.objects(tmp_path))
            assert left_out == ["Unheard of: the kind example.org/v1 Unheard is not installed here."]
        made = await client.raw("GET", "/apis/ipam.metal3.io/v1alpha1/namespaces/up-examples/ippools/pool1")
    assert made["spec"]["clusterName"] == "cluster1"
