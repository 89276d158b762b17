"""Section G of the contract: the seed's four steps on plain Kubernetes, with nothing prepared by hand.

The operator is started with the bundle's own arguments and its account's own token. It makes its certificate
itself, and the API server asks it through the bundle's Service, as it would a pod.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.cluster import Kubectl
from tests.support.operator import admin, built
from tests.support.shipped import ROUTED, described
from tests.support.vip import NAMESPACES, G, World

from berth.devcluster import DevCluster
from berth.dialects.vip.interval import interval_seconds
from berth.errors import StatusError

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
BUNDLE = Path(__file__).parents[3] / "deploy" / "bundle.yaml"
NAMESPACE = "vip-allocator-operator"
INTERVAL_TOLD = "RECONCILIATION_INTERVAL_MS is no number of milliseconds"


@pytest.mark.parametrize(
    "image",
    [pytest.param("", id="P-087"), pytest.param("registry.intern:5000/carried/berth:1", id="P-088")],
)
async def test_the_four_steps_end_with_an_operator_that_is_ready(tmp_path: Path, image: str) -> None:
    """P-089 too: it runs although the interval is no number, and says what it does instead."""
    async with DevCluster(ROUTED) as cluster, admin(cluster) as client:
        kubectl = Kubectl(cluster)
        bundle, deployment = _bundle(image)
        await kubectl("create", "namespace", NAMESPACE)
        await kubectl("create", "-f", "-", stdin=bundle)
        assert await _images(kubectl) == [deployment["spec"]["template"]["spec"]["containers"][0]["image"]]
        shipped = await described(cluster, client, deployment, tmp_path)
        async with shipped.running():
            await client.create(NAMESPACES, built(NAMESPACES, "test"))
            world = World(client)
            await world.group(*G)
            await world.served("web", "1.1.1.1")
            with pytest.raises(StatusError, match="cannot delete ip objects") as raised:
                await client.raw("DELETE", "/apis/paas.org/v1/ips/1.1.1.1")
            assert f"only system:serviceaccount:{NAMESPACE}:berth-operator is allowed" in str(raised.value)
        assert INTERVAL_TOLD in shipped.log()


async def _images(kubectl: Kubectl) -> list[str]:
    """All that a node would fetch of what was created, whatever the kind."""
    kinds = "deployments,daemonsets,statefulsets,jobs,cronjobs,pods"
    path = "{..image}"
    return (await kubectl("get", kinds, "-n", NAMESPACE, "-o", f"jsonpath={path}")).split()


def _bundle(image: str) -> tuple[str, dict[str, Any]]:
    """The file as it is shipped, or with the image's name changed as step 2 says; the interval is a slip."""
    objects = list(yaml.safe_load_all(BUNDLE.read_text()))
    deployment = next(obj for obj in objects if obj["kind"] == "Deployment")
    containers = deployment["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1  # one image to carry
    if image:
        containers[0]["image"] = image
    containers[0].setdefault("env", []).append({"name": "RECONCILIATION_INTERVAL_MS", "value": "abc"})
    return yaml.safe_dump_all(objects), deployment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 60.0), ("abc", 60.0), ("-5", 60.0), ("0", 60.0), ("99999999999", 60.0), ("5000", 5.0), ("10", 1.0)],
)
async def test_an_interval_that_is_no_number_is_a_minute(text: str, seconds: float) -> None:
    """P-089."""
    assert interval_seconds(text) == seconds
