"""An installation as it is shipped: a file of deploy/ applied with kubectl, and the operator it describes.

The operator is a process with the arguments of the file's Deployment and the token of its account, nothing of
the administrator's. The API server asks its webhooks through the file's Service, as it would a pod's.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from tests.support.cluster import Kubectl
from tests.support.operator import built, eventually

from berth.devcluster import ClusterOptions, DevCluster
from berth.devcluster.ports import free
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.manifests import OPERATOR, WEBHOOK

Object = dict[str, Any]
DEPLOY = Path(__file__).parents[2] / "deploy"
SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
# Without kube-proxy on this machine the API server goes to a Service's endpoints itself.
ROUTED = ClusterOptions(apiserver_flags=("--enable-aggregator-routing=true",))
START_SECONDS, STOP_SECONDS = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Shipped:
    cluster: DevCluster
    client: Client  # the administrator's
    namespace: str
    account: Path  # kubeconfig of the operator's account
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    @asynccontextmanager
    async def running(self, **changed: str) -> AsyncIterator[int]:
        """The operator, ready; yields the port of its metrics. Flags given here replace the file's."""
        health, webhook = free(2)
        flags = {"health-listen": f":{health}", "webhook-port": str(webhook), "kubeconfig": str(self.account)}
        flags |= {key.replace("_", "-"): value for key, value in changed.items()}
        await _endpoint(self.client, self.namespace, webhook)
        kept = [argument for argument in self.arguments if argument.partition("=")[0][2:] not in flags]
        command = [sys.executable, "-m", "berth.cli.main", *kept, *(f"--{k}={v}" for k, v in flags.items())]
        with (self.account.parent / "operator.log").open("ab") as said:
            environment = {**os.environ, **self.environment}
            process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=said)
        try:
            await eventually(lambda: _is_ready(process, health), START_SECONDS)
            yield health
        finally:
            await _stop(process)

    def log(self) -> str:
        return (self.account.parent / "operator.log").read_text()


async def installed(cluster: DevCluster, client: Client, file: Path, home: Path) -> Shipped:
    await apply(cluster, file)
    return await described(cluster, client, _deployment(file), home)


async def described(cluster: DevCluster, client: Client, deployment: Object, home: Path) -> Shipped:
    """The operator of a Deployment that was applied."""
    namespace = deployment["metadata"]["namespace"]
    account = await _account(cluster, client, namespace, home)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    environment = {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}
    return Shipped(cluster, client, namespace, account, tuple(container["args"]), environment)


def _deployment(file: Path) -> Object:
    return next(obj for obj in yaml.safe_load_all(file.read_text()) if obj and obj["kind"] == "Deployment")


async def apply(cluster: DevCluster, file: Path, *, by: str = "-f") -> None:
    """For real, with the server's validation: an unknown or doubled field is an error."""
    flags = ("--server-side", "--force-conflicts", "--validate=strict")
    await Kubectl(cluster)("apply", *flags, by, str(file))


async def _account(cluster: DevCluster, client: Client, namespace: str, home: Path) -> Path:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{OPERATOR}/token"
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = (await client.raw("POST", path, body=wanted))["status"]["token"]
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    content["users"] = [{"name": user["name"], "user": {"token": token}} for user in content["users"]]
    found = home / "account.yaml"
    found.write_text(yaml.safe_dump(content))
    return found


async def _endpoint(client: Client, namespace: str, port: int) -> None:
    """Where the pod would be: this machine, at an address that is not its loopback."""
    body = {
        **built(SLICES, f"{WEBHOOK}-{port}", labels={"kubernetes.io/service-name": WEBHOOK}),
        "addressType": "IPv4",
        "endpoints": [{"addresses": [_own_address()], "conditions": {"ready": True}}],
        "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
    }
    for old in (await client.list(SLICES, namespace)).items:  # of an operator that ran before
        await client.delete(SLICES, old["metadata"]["name"], namespace)
    await client.create(SLICES, body, namespace)


def _own_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            return str(probe.getsockname()[0])
        except OSError:  # no way out of this machine: any address of its own will do
            listed = subprocess.run(
                ["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=True
            ).stdout
    own = [line.split()[3].partition("/")[0] for line in listed.splitlines()]
    others = [text for text in own if not text.startswith("127.")]
    assert others, "this machine has only its loopback; give it an address: ip addr add 10.99.0.1/32 dev lo"
    return others[0]


async def _is_ready(process: asyncio.subprocess.Process, port: int) -> bool:
    if process.returncode is not None:
        raise RuntimeError(f"the operator ended with {process.returncode}")
    try:
        return (await fetched(port, "readyz"))[0] == 200
    except aiohttp.ClientError:
        return False


async def fetched(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/{path}") as answer:
        return answer.status, await answer.text()


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.wait(), STOP_SECONDS)
