"""A pod that talks to the webhooks itself. With --webhook-client-ca only the API server is listened to, which
is told its certificate in a file of its own: docs/operations.md, *Who may ask the webhooks*.
"""

from __future__ import annotations

import ssl
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from tests.kube.certificates import Authority
from tests.support.cluster import make_namespace
from tests.support.operator import Operator, built, eventually, running
from tests.support.reviews import body_of

from berth.control.webhooks import VALIDATING
from berth.devcluster import ClusterOptions, DevCluster
from berth.devcluster.ports import free
from berth.dialects.metal3 import kinds
from berth.errors import Invalid, KubeError

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
Object = dict[str, Any]
PLUG_INS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
BACKWARDS: Object = {"namePrefix": "r", "pools": [{"start": "10.0.0.9", "end": "10.0.0.1"}]}
FINE: Object = {"namePrefix": "r", "pools": [{"start": "10.0.0.1", "end": "10.0.0.9"}]}
PATIENCE = aiohttp.ClientTimeout(total=20)


@dataclass(frozen=True, slots=True)
class Stage:
    operator: Operator
    ours: Authority  # whose certificates the webhooks want to see
    namespace: str
    home: Path

    @property
    def url(self) -> str:
        port = self.operator.listening.webhook
        return f"https://127.0.0.1:{port}/validate-ipam-metal3-io-v1alpha1-ippool"

    async def create(self, spec: Object, *, dry_run: bool = False) -> None:
        pool = built(kinds.POOL, f"pool-{uuid.uuid4().hex[:8]}", spec)
        await self.operator.client.create(kinds.POOL, pool, self.namespace, dry_run=dry_run)

    async def ask(self, authority: Authority | None) -> int:
        """A review made up by a pod, with a certificate of this authority or none → the HTTP status."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # what does an attacker care
        if authority is not None:
            context.load_cert_chain(*authority.issue("kube-apiserver").write(self.home, "pod"))
        async with (
            aiohttp.ClientSession(timeout=PATIENCE) as session,
            session.post(self.url, data=body_of(), ssl=context) as answer,
        ):
            return answer.status


def told(home: Path, authority: Authority, port: int) -> Path:
    """The file for --admission-control-config-file, as docs/operations.md shows it."""
    certificate, key = authority.issue("kube-apiserver").write(home, "kube-apiserver")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    kubeconfig = home / "webhooks.kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {"apiVersion": "v1", "kind": "Config", "users": [{"name": f"127.0.0.1:{port}", "user": user}]}
        )
    )
    of_plug_in = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    found = home / "admission.yaml"
    found.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AdmissionConfiguration",
                "plugins": [{"name": name, "configuration": of_plug_in} for name in PLUG_INS],
            }
        )
    )
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    home, ours, [port] = tmp_path_factory.mktemp("door"), Authority("api servers"), free(1)
    (home / "clients.crt").write_bytes(ours.pem)
    flags = (f"--admission-control-config-file={told(home, ours, port)}",)
    async with DevCluster(ClusterOptions(apiserver_flags=flags)) as own:
        namespace = await make_namespace(own)
        settings: Object = {
            "dialects": ("metal3",),
            "webhook_url": f"https://127.0.0.1:{port}",
            "webhook_client_ca": home / "clients.crt",
        }
        async with running(own, **settings) as operator:
            made = Stage(operator, ours, namespace, home)
            await eventually(partial(_is_asked, made))
            yield made


async def _is_asked(stage: Stage) -> bool:
    """Whether the API server has taken the registration over: a bad pool is refused by us."""
    try:
        await stage.create(BACKWARDS, dry_run=True)
    except Invalid:
        return True
    except KubeError:
        return False
    return False


async def test_the_api_server_shows_its_certificate_and_is_answered(stage: Stage) -> None:
    """Both plug-ins: what we fill in is there, what we refuse is refused."""
    await stage.create(FINE)
    [made] = (await stage.operator.client.list(kinds.POOL, stage.namespace)).items
    assert made["spec"]["allocationStrategy"] == "sequential"  # the mutating one
    with pytest.raises(Invalid, match=r"end IP 10\.0\.0\.1 is before start IP 10\.0\.0\.9"):
        await stage.create(BACKWARDS)
    assert await stage.ask(stage.ours) == 200  # so the two below are refused for their certificate


async def test_a_pod_without_a_certificate_sends_a_review_of_its_own(stage: Stage) -> None:
    """It gets no answer at all: TLS ends before a request is read."""
    with pytest.raises(aiohttp.ClientError):
        await stage.ask(None)


async def test_a_pod_sends_a_review_with_a_certificate_of_another_authority(stage: Stage) -> None:
    """Not even under the API server's own name, from an authority of the same name."""
    with pytest.raises(aiohttp.ClientError):
        await stage.ask(Authority("api servers"))


async def test_an_api_server_that_shows_no_certificate_is_not_answered_either(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """Who sets the flag and forgets the API servers sees it at the first write: nothing is let through."""
    (tmp_path / "clients.crt").write_bytes(Authority().pem)
    [port] = free(1)
    namespace = await make_namespace(cluster)
    settings: Object = {
        "dialects": ("metal3",),
        "webhook_url": f"https://127.0.0.1:{port}",
        "webhook_client_ca": tmp_path / "clients.crt",
    }
    async with running(cluster, **settings) as operator:
        made = Stage(operator, Authority(), namespace, tmp_path)
        await operator.client.get(VALIDATING, "berth-metal3")
        await eventually(partial(_is_refused, made))


async def _is_refused(stage: Stage) -> bool:
    try:
        await stage.create(FINE, dry_run=True)
    except KubeError as error:
        # TLS 1.3 tells it with the first read; whoever still writes then sees a broken connection.
        return "failed calling webhook" in str(error)
    return False
