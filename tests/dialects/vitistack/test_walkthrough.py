"""The documents' walk-through with kubectl, step by step. Its output is docs/walkthrough-vitistack.md.

`BERTH_WRITE_DOCS=1 pytest tests/dialects/vitistack/test_walkthrough.py` writes the page anew.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support import metallb
from tests.support.cluster import Kubectl
from tests.support.operator import eventually, gone
from tests.support.started import Neighbour, neighbour
from tests.support.vitistack import Api, World, address_of, operating, prepared

from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "walkthrough-vitistack.md"
EXAMPLES = "examples/vitistack"


@dataclass(slots=True)
class Walk:
    """Runs commands as a person would, and remembers what they saw."""

    kubectl: Kubectl
    world: World
    ror: Neighbour
    lines: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.lines.append(f"\n{text}\n")

    async def run(self, command: str, kubectl: Kubectl | None = None) -> str:
        """A kubectl command line, without its first word; what it said comes back, refusals too."""
        arguments = [word.replace(EXAMPLES, str(ROOT / EXAMPLES)) for word in command.split(" ")]
        try:
            said = await (kubectl or self.kubectl)(*arguments)
        except AssertionError as error:
            said = str(error).partition(": ")[2] + "\n"
        site = "" if kubectl is None else "(other site) "
        self.lines.append(f"```\n{site}$ kubectl {command}\n{_steady(said).rstrip()}\n```")
        return said

    async def apply(self, manifest: str, kubectl: Kubectl | None = None) -> None:
        said = await (kubectl or self.kubectl)("apply", "-f", "-", stdin=manifest)
        site = "" if kubectl is None else "(other site) "
        shown = f"{site}$ kubectl apply -f - <<EOF\n{manifest.strip()}\nEOF\n{said.strip()}"
        self.lines.append(f"```\n{shown}\n```")

    async def look(self, name: str) -> str:
        """Its annotations of ours, one a line."""
        command = f"-n services get service {name} -o yaml"
        said = await self.kubectl(*command.split(" "))
        found = sorted(set(re.findall(r"ipam\.vitistack\.io/[a-z-]+: .*", said)))
        shown = "\n".join(found)
        self.lines.append(f"```\n$ kubectl {command} | grep ipam.vitistack.io\n{_steady(shown)}\n```")
        return shown

    def ledger(self, address: str) -> None:
        found = self.world.api.entries(address)
        rows = [
            f"{name}  {'in use' if entry.active else 'expires'}  retention {entry.retention}"
            for name, entry in sorted(found.items())
        ]
        told = "\n".join(rows) or "free"
        self.lines.append(f"What the IPAM-API knows of {address.partition('/')[0]}:\n```\n{told}\n```")

    async def expiring(self, address: str, name: str) -> None:
        async def is_so() -> bool:
            entry = self.world.api.entries(address).get(name)
            return entry is None or not entry.active

        await eventually(is_so, 60)

    async def free(self, address: str) -> None:
        async def is_so() -> bool:
            return address.partition("/")[0] not in self.world.api.addresses()

        await eventually(is_so, 60)


def _steady(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"pre-shared-key-[A-Za-z0-9]{32}", "pre-shared-key-…", text)
    return text.replace(str(ROOT) + "/", "")


@pytest_asyncio.fixture(loop_scope="session")
async def walk(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Walk]:
    async with AsyncExitStack() as stack:
        ror = stack.enter_context(neighbour("sse", tmp_path / "ror"))
        api = Api(tmp_path, ("--ror-url", ror.url, "--sweep-seconds", "1"))
        client = await stack.enter_async_context(prepared(cluster))
        api.start()
        stack.callback(api.stop)
        await stack.enter_async_context(metallb.assigning(client))
        await stack.enter_async_context(operating(cluster, api))
        walk = Walk(Kubectl(cluster), World(client, api, "services"), ror)
        yield walk
        await client.delete(kinds.NAMESPACE, "services")


async def test_the_documents_walk_through(walk: Walk) -> None:
    """Create, look, update each annotation, share, dual, anycast, delete, recall, cluster deletion by SSE."""
    walk.lines.append(HEAD)
    await _create(walk)
    await _update(walk)
    await _share(walk)
    await _recall(walk)
    async with (
        DevCluster() as other,
        prepared(other) as client,
        operating(other, walk.world.api),
    ):
        await _anycast(walk, World(client, walk.world.api, "services"), Kubectl(other))
    await _cluster_deletion(walk)
    if os.environ.get("BERTH_WRITE_DOCS"):
        await asyncio.to_thread(PAGE.write_text, "\n".join(walk.lines).strip() + "\n")


async def _create(walk: Walk) -> None:
    walk.say("## Create\nThe type is all it needs.")
    await walk.run("create namespace services")
    assert "created" in await walk.run(f"apply -f {EXAMPLES}/service.yaml")
    assert "83.118.168.0/32" in await walk.look("my-service")
    walk.say("MetalLB's pool of the zone lists the address, and MetalLB assigns it.")
    assert "83.118.168.0/32" in await walk.run(
        "-n metallb-system get ipaddresspool inet -o jsonpath={.spec.addresses}"
    )

    async def is_assigned() -> bool:
        status = (await walk.world.get())["status"]["loadBalancer"]
        return [one["ip"] for one in status.get("ingress") or []] == ["83.118.168.0"]

    assert await eventually(is_assigned, 60)
    await walk.run("-n services get service my-service -o jsonpath={.status.loadBalancer.ingress[*].ip}")
    walk.say(
        "What Kubernetes would refuse is refused before an address is spent; what makes no sense is told."
    )
    said = await walk.run(
        "-n services annotate service my-service --overwrite ipam.vitistack.io/retention-period-days=31"
    )
    assert "retention period cannot be more than 30 days" in said


async def _update(walk: Walk) -> None:
    walk.say("## Update\nRetention and the flag that keeps ROR away are sent before the update returns.")
    note = "-n services annotate service my-service --overwrite"
    await walk.run(
        f"{note} ipam.vitistack.io/retention-period-days=7 ipam.vitistack.io/deny-external-cleanup=true"
    )
    entry = walk.world.api.entries("83.118.168.0")["my-service"]
    assert (entry.retention, entry.deny) == (7, True)
    walk.ledger("83.118.168.0")
    walk.say("Another address: the new one is registered, the old one is kept for its seven days.")
    await walk.run(f"{note} ipam.vitistack.io/addresses=83.118.168.20")
    await walk.expiring("83.118.168.0", "my-service")
    await walk.look("my-service")
    walk.ledger("83.118.168.0")
    walk.say("The zone cannot change under an address; with the address emptied it does.")
    assert "prohibited" in await walk.run(f"{note} ipam.vitistack.io/zone=hnet-private")
    await walk.run(f"{note} ipam.vitistack.io/zone=hnet-private ipam.vitistack.io/addresses=")
    assert "hnet-private" in await walk.look("my-service")
    walk.say("Both families, and back to one. Zones of the health network have IPv4 only.")
    assert "no prefixes found" in await walk.run(f"{note} ipam.vitistack.io/ip-family=dual")
    await walk.run(f"apply -f {EXAMPLES}/dual.yaml")
    assert "2a05:1234::/128,83.118.168." in await walk.look("dual")
    await walk.run("-n services annotate service dual --overwrite ipam.vitistack.io/ip-family=ipv4")
    assert "2a05" not in await walk.look("dual")
    walk.say("Another secret, kept beside the Service.")
    await walk.run(f"apply -f {EXAMPLES}/secret.yaml")
    await walk.run("-n services annotate service dual --overwrite ipam.vitistack.io/secret=my-secret")
    assert "my-secret" in await walk.look("dual")


async def _share(walk: Walk) -> None:
    walk.say("## Share\nTwo Services on one address: the same key, the same secret, other ports.")
    await walk.run(f"apply -f {EXAMPLES}/annotated.yaml -f {EXAMPLES}/shared.yaml")
    walk.ledger("83.118.168.10")
    assert walk.world.api.holders("83.118.168.10") == 2
    walk.say("An address that several use keeps its secret.")
    said = await walk.run(
        "-n services annotate service shared --overwrite ipam.vitistack.io/secret=my-secret"
    )
    assert "multiple services registered. unable to change secret" in said
    await walk.run("-n services delete service annotated")
    await walk.expiring("83.118.168.10", "annotated")
    walk.ledger("83.118.168.10")
    assert walk.world.api.entries("83.118.168.10")["shared"].active
    await walk.run("-n services delete service shared")
    await walk.free("83.118.168.10")


async def _recall(walk: Walk) -> None:
    walk.say("## Delete, and recall within retention")
    note = "-n services annotate service dual --overwrite"
    await walk.run(f"{note} ipam.vitistack.io/retention-period-days=7")
    address = address_of(await walk.world.get("dual"))
    await walk.run("-n services delete service dual")
    await walk.expiring(address, "dual")
    walk.ledger(address)
    walk.say("The same name in the same namespace with the same secret gets it back, without naming it.")
    await walk.apply(manifest("dual", "ipam.vitistack.io/secret: my-secret"))
    made = await walk.world.get("dual")
    assert address_of(made) == address
    await walk.look("dual")


async def _anycast(walk: Walk, there: World, kubectl: Kubectl) -> None:
    walk.say(
        "## Anycast from two clusters\nThe same secret and the same address, from another control plane."
    )
    address = address_of(await walk.world.get("dual"))
    await walk.run("create namespace services", kubectl)
    await walk.run(f"apply -f {EXAMPLES}/secret.yaml", kubectl)
    wishes = ("ipam.vitistack.io/secret: my-secret", f"ipam.vitistack.io/addresses: {address}")
    await walk.apply(manifest("anycast", *wishes), kubectl)
    made = await there.get("anycast")
    assert address_of(made) == address
    walk.ledger(address)
    assert walk.world.api.holders(address) == 2
    await walk.run("-n services delete service dual")
    await walk.expiring(address, "dual")
    assert walk.world.api.entries(address)["anycast"].active
    walk.ledger(address)
    await there.client.delete(kinds.SERVICE, "anycast", "services")
    await gone(there.client, kinds.SERVICE, "anycast", "services")
    await walk.expiring(address, "anycast")


async def _cluster_deletion(walk: Walk) -> None:
    walk.say(
        "## A cluster is deleted\nROR tells the IPAM-API over its event stream; "
        "who said `deny-external-cleanup` is spared."
    )
    await walk.run(f"apply -f {EXAMPLES}/annotated.yaml")
    cluster_id = (await walk.world.client.get(kinds.NAMESPACE, "kube-system"))["metadata"]["uid"]
    spared = address_of(await walk.world.get())
    await walk.world.passed()  # the controller confirms what is new, and that would take back what ROR says
    walk.ror.say("events", f'id: 1\nevent: cluster.deleted\ndata: {{"cluster_id": "{cluster_id}"}}\n\n')
    await walk.expiring("83.118.168.10", "annotated")
    assert walk.world.api.entries(spared)["my-service"].active
    walk.ledger("83.118.168.10")
    walk.ledger(spared)


def manifest(name: str, *annotations: str) -> str:
    notes = "\n".join(f"    {line}" for line in annotations)
    return f"""\
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: services
  annotations:
{notes}
spec:
  type: LoadBalancer
  ports: [{{protocol: TCP, port: 80, targetPort: 100}}]
"""


HEAD = """# The walk-through: Services with addresses from the IPAM-API

Every command below was run by `tests/dialects/vitistack/test_walkthrough.py` against a real API
server and a real `berth api`; this page is its output. The examples are in
[examples/vitistack](../examples/vitistack), all fields in [dialects/vitistack.md](dialects/vitistack.md).
"""
