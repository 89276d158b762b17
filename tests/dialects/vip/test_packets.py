"""Packets: the real kube-proxy in iptables mode turns our status into rules, and a client reaches the pod.

What the whole dialect is for. The Service gets its address from Berth, the client's only way to it is the
administrator's route to the node, and no part of the path is ours.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from tests.support.net import Lab, answering, carrying, laboratory, within
from tests.support.operator import built, eventually
from tests.support.vip import World

from berth.devcluster import DevCluster
from berth.devcluster.process import Process
from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import State
from berth.kube.resource import Resource

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="session"),
]
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
HELLO = "hello from the pod"
PORT = 80


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lab(cluster: DevCluster) -> AsyncIterator[Lab]:
    """The node runs kube-proxy, the pod answers, the segments are routed to the node."""
    port = int(cluster.api_url.rpartition(":")[2])
    await cluster.request("POST", "/api/v1/nodes", _node())
    async with laboratory() as lab:
        for segment in ("1.1.1.0/24", "5.5.5.0/24", "2001:db8:1::/64"):
            lab.route(segment)
        node, pod = lab.listen("node", port, "127.0.0.1"), lab.listen("pod", 8080)
        async with carrying(node, port), answering(pod, HELLO):
            proxy = _kube_proxy(cluster, lab)
            proxy.start()
            try:
                await proxy.ready(lambda: _is_healthy(lab), 60)
                yield lab
            finally:
                await proxy.stop(2.5)


def _node() -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": ip} for ip in ("192.0.2.1", "2001:db8:c::1")]
    return {**built(NODES, "packets"), "status": {"addresses": addresses}}


def _kube_proxy(cluster: DevCluster, lab: Lab) -> Process:
    program = cluster.binaries["kube-proxy"]
    limits = ("max-per-core", "min", "tcp-timeout-established", "tcp-timeout-close-wait")
    command = [
        *(str(shutil.which("ip")), "netns", "exec", lab.name("node"), str(program)),
        f"--kubeconfig={cluster.kubeconfig}",
        "--proxy-mode=iptables",
        "--hostname-override=packets",
        "--cluster-cidr=10.244.0.0/24,fd00:10:244::/64",
        *(f"--conntrack-{limit}=0" for limit in limits),  # the machine's own, not to be changed by a test
    ]
    return Process(command, cluster.directory / "logs" / "kube-proxy.log")


async def _is_healthy(lab: Lab) -> bool:
    try:
        answer = await asyncio.to_thread(within, lab.name("node"), _health)
    except OSError:
        return False
    return b" 200 " in answer


def _health() -> bytes:
    with socket.create_connection(("127.0.0.1", 10256), timeout=1) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        return connection.recv(100)


async def _endpoints(world: World, service: str) -> None:
    """As the endpoint controller of a real cluster would: the pod, for each family."""
    for family, address in (("IPv4", "10.244.0.2"), ("IPv6", "fd00:10:244::2")):
        slice_ = {
            **built(SLICES, f"{service}-{family.lower()}", labels={"kubernetes.io/service-name": service}),
            "addressType": family,
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
            "ports": [{"name": f"p{PORT}", "port": 8080, "protocol": "TCP"}],
        }
        await world.client.create(SLICES, slice_, world.namespace)


async def _answers(lab: Lab, address: str) -> bool:
    try:
        return await asyncio.to_thread(lab.ask, address, PORT) == HELLO
    except OSError:
        return False


async def _is_silent(lab: Lab, address: str) -> bool:
    return not await _answers(lab, address)


async def test_a_request_to_the_services_address_is_answered_by_the_pod(world: World, lab: Lab) -> None:
    await world.group("1.1.1.0-24", "1.1.1.0/24", ["1.1.1.0", "1.1.1.255"])
    assert await _is_silent(lab, "1.1.1.1")
    await _endpoints(world, "web")
    await world.served("web", "1.1.1.1")
    await eventually(lambda: _answers(lab, "1.1.1.1"))
    assert await _is_silent(lab, "1.1.1.2")
    await world.delete("web")
    await eventually(lambda: _is_silent(lab, "1.1.1.1"))


async def test_both_families_are_answered(world: World, lab: Lab) -> None:
    await world.group("four", "1.1.1.0/24")
    await world.group("six", "2001:db8:1::/64")
    await _endpoints(world, "web")
    addresses = await world.served("web", ipFamilyPolicy="RequireDualStack")
    assert addresses == ("1.1.1.0", "2001:db8:1::")
    for address in addresses:
        await eventually(lambda address=address: _answers(lab, address))  # type: ignore[misc]


@dataclass(slots=True)
class Probe:
    """A client that asks again and again, each time anew."""

    asked: int = 0
    unanswered: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def outage_ms(self) -> float:
        return (self.unanswered[-1] - self.unanswered[0]) * 1000 if self.unanswered else 0.0


@asynccontextmanager
async def _probing(lab: Lab, address: str) -> AsyncIterator[Probe]:
    probe = Probe()

    def ask() -> None:
        while not probe.over.wait(0.002):
            probe.asked += 1
            try:
                # The kernels connect; the pod's answer comes from this loop, which may be busy.
                with socket.create_connection((address, PORT), timeout=0.2) as connection:
                    connection.settimeout(60)
                    connection.recv(100)
            except OSError:
                probe.unanswered.append(time.monotonic())

    thread = threading.Thread(target=within, args=(lab.name("client"), ask))
    thread.start()
    try:
        yield probe
    finally:
        probe.over.set()
        await asyncio.to_thread(thread.join)  # the pod answers on this loop


async def test_a_migrated_virtual_ip_is_answered_all_the_way(world: World, lab: Lab) -> None:
    """By the clone before, by the Service after, and without a gap between."""
    await world.mapping("gsm", "5.5.5.0/24")
    await world.service("web", "ClusterIP")
    await _endpoints(world, "web")
    await _endpoints(world, "vip-keepalived-clone")
    await world.vip("vip", "web", "5.5.5.5")
    await world.vip_state("vip", "Valid")
    await eventually(lambda: _answers(lab, "5.5.5.5"))
    await world.group("new", "5.5.5.0/24")
    async with _probing(lab, "5.5.5.5") as probe:
        change = {"metadata": {"annotations": {kinds.MIGRATE: ""}}}
        await world.client.patch(kinds.VIRTUAL_IP, "vip", change, world.namespace)
        await world.vip_state("vip", State.MIGRATED)
        settled = probe.asked + 500  # kube-proxy writes its rules at most once a second
        await eventually(lambda: _has_asked(probe, settled))
    assert probe.unanswered == [], f"{len(probe.unanswered)} of {probe.asked}, {probe.outage_ms():.0f} ms"
    await world.client.delete(kinds.VIRTUAL_IP, "vip", world.namespace)
    assert await _answers(lab, "5.5.5.5")
    await world.delete("web")
    await eventually(lambda: _is_silent(lab, "5.5.5.5"))


async def _has_asked(probe: Probe, count: int) -> bool:
    return probe.asked >= count
