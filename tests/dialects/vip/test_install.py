"""Section G of the contract: the seed's four steps on plain Kubernetes, with nothing prepared by hand.

The operator is started with the bundle's own arguments and its account's own token. It makes its certificate
itself, and the API server asks it through the bundle's Service, as it would a pod.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from tests.support.cluster import Kubectl
from tests.support.operator import admin, built, eventually
from tests.support.vip import NAMESPACES, G, World

from berth.devcluster import DevCluster, Options
from berth.devcluster.ports import free
from berth.dialects.vip.interval import interval_seconds
from berth.errors import StatusError
from berth.kube.client import Client
from berth.kube.resource import Resource

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
BUNDLE = Path(__file__).parents[3] / "deploy" / "bundle.yaml"
NAMESPACE = "vip-allocator-operator"
SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")


@pytest.mark.parametrize(
    "image",
    [pytest.param("", id="P-087"), pytest.param("registry.intern:5000/carried/berth:1", id="P-088")],
)
async def test_the_four_steps_end_with_an_operator_that_is_ready(tmp_path: Path, image: str) -> None:
    # Without kube-proxy on this machine the API server goes to the Service's endpoints itself.
    options = Options(apiserver_flags=("--enable-aggregator-routing=true",))
    async with DevCluster(options) as cluster, admin(cluster) as client:
        kubectl = Kubectl(cluster)
        bundle, deployment = _bundle(image)
        await kubectl("create", "namespace", NAMESPACE)
        await kubectl("create", "-f", "-", stdin=bundle)
        account = await _account(cluster, client, tmp_path)
        health, webhook = free(2)
        await _endpoint(client, webhook)
        async with _operator(
            deployment, account, {"health-listen": f":{health}", "webhook-port": str(webhook)}
        ):
            await eventually(lambda: _is_ready(health), 60)
            await client.create(NAMESPACES, built(NAMESPACES, "test"))
            world = World(client)
            await world.group(*G)
            await world.served("web", "1.1.1.1")
            with pytest.raises(StatusError, match="cannot delete ip objects") as raised:
                await client.raw("DELETE", "/apis/paas.org/v1/ips/1.1.1.1")
            assert f"only system:serviceaccount:{NAMESPACE}:berth-operator is allowed" in str(raised.value)


def _bundle(image: str) -> tuple[str, dict[str, Any]]:
    """The file as it is shipped, or with the image's name changed as step 2 says."""
    objects = list(yaml.safe_load_all(BUNDLE.read_text()))
    deployment = next(obj for obj in objects if obj["kind"] == "Deployment")
    containers = deployment["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1  # one image to carry
    if image:
        containers[0]["image"] = image
    return yaml.safe_dump_all(objects), deployment


async def _account(cluster: DevCluster, client: Client, home: Path) -> Path:
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/berth-operator/token"
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await client.raw("POST", path, body=wanted))["status"]["token"]
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    content["users"] = [{"name": user["name"], "user": {"token": token}} for user in content["users"]]
    found = home / "account.yaml"
    found.write_text(yaml.safe_dump(content))
    return found


async def _endpoint(client: Client, port: int) -> None:
    """Where the pod would be: this machine, at an address that is not its loopback."""
    body = {
        **built(SLICES, "berth-webhook-1", labels={"kubernetes.io/service-name": "berth-webhook"}),
        "addressType": "IPv4",
        "endpoints": [{"addresses": [_own_address()], "conditions": {"ready": True}}],
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
    }
    await client.create(SLICES, body, NAMESPACE)


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        return str(probe.getsockname()[0])


@asynccontextmanager
async def _operator(
    deployment: dict[str, Any], kubeconfig: Path, changed: dict[str, str]
) -> AsyncIterator[None]:
    """The container's command; only ports differ, as other tests run beside this one."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    arguments = [argument for argument in container["args"] if argument.partition("=")[0][2:] not in changed]
    environment = {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "berth.cli.main", *arguments, f"--kubeconfig={kubeconfig}"),
        *(f"--{flag}={value}" for flag, value in changed.items()),
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 10)


async def _is_ready(port: int) -> bool:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as answer,
        ):
            return answer.status == 200
    except aiohttp.ClientError:
        return False


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 60.0), ("abc", 60.0), ("-5", 60.0), ("0", 60.0), ("99999999999", 60.0), ("5000", 5.0), ("10", 1.0)],
)
async def test_an_interval_that_is_no_number_is_a_minute(text: str, seconds: float) -> None:
    """P-089."""
    assert interval_seconds(text) == seconds
