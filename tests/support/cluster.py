"""What tests on the real control plane share: one cluster per worker, kubectl, namespaces of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from dataclasses import dataclass

from berth.devcluster import DevCluster


class KubectlFailed(AssertionError):
    """kubectl ended with another code than 0; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """The real kubectl on one cluster: `await kubectl("get", "pods", "-n", namespace)` → its output."""

    cluster: DevCluster

    async def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return await asyncio.to_thread(self.run, *arguments, stdin=stdin)

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """The same for tests that are not async."""
        done = subprocess.run(
            [self.cluster.binaries["kubectl"], *arguments],
            input=stdin,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    async def apply(self, manifest: str) -> str:
        return await self("apply", "-f", "-", stdin=manifest)

    def _environment(self) -> dict[str, str]:
        # kubectl caches discovery per host and port, and ports come back with other clusters behind them.
        cache = str(self.cluster.directory / "kubectl-cache")
        return os.environ | {"KUBECONFIG": str(self.cluster.kubeconfig), "KUBECACHEDIR": cache}


async def make_namespace(cluster: DevCluster, prefix: str = "test") -> str:
    name = f"{prefix}-{uuid.uuid4().hex[:10]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    answer = await cluster.request("POST", "/api/v1/namespaces", body)
    assert answer.ok, answer.text
    return name


async def drop_namespace(cluster: DevCluster, name: str) -> None:
    """Asks only: no controller empties it, and the cluster goes with the session anyway."""
    await cluster.request("DELETE", f"/api/v1/namespaces/{name}")
