"""Network namespaces of a test: a client, a node and a pod, joined by veth pairs.

    client ──192.0.2.0/30── node ──10.244.0.0/24── pod
           2001:db8:c::/64        fd00:10:244::/64

Sockets are made in a namespace by a thread that enters it and ends; whoever has the socket uses it from
anywhere. That is also how kube-proxy reaches the API server: the node's loopback is carried to this one's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import socket
import subprocess
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
CLONE_NEWNET = 0x40000000
NEEDED = ("ip", "iptables", "ip6tables", "conntrack")


def require_tools() -> None:
    """Never passed over in silence: whoever cannot run this test must hear of it."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    assert not missing, f"this test needs {', '.join(missing)}: run `sh tests/prepare` as root"
    assert os.geteuid() == 0, "this test makes network namespaces and needs root"


def within(namespace: str, act: Callable[[], T]) -> T:
    """Run it in the namespace, on a thread of its own that ends with it."""
    outcome: list[T] = []
    faults: list[BaseException] = []

    def enter() -> None:
        try:
            with Path(f"/run/netns/{namespace}").open() as handle:
                if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
            outcome.append(act())
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return outcome[0]


@dataclass(slots=True)
class Lab:
    """The three namespaces; `run` is a command in one of them."""

    suffix: str = field(default_factory=lambda: uuid.uuid4().hex[:6])

    def name(self, role: str) -> str:
        return f"berth-{role}-{self.suffix}"

    def run(self, role: str, *command: str) -> str:
        return _run("ip", "netns", "exec", self.name(role), *command)

    def build(self) -> None:
        for role in ("client", "node", "pod"):
            _run("ip", "netns", "add", self.name(role))
            self.run(role, "ip", "link", "set", "lo", "up")
        self._join("client", ("192.0.2.2/30", "2001:db8:c::2/64"), ("192.0.2.1/30", "2001:db8:c::1/64"))
        self._join("pod", ("10.244.0.2/24", "fd00:10:244::2/64"), ("10.244.0.1/24", "fd00:10:244::1/64"))
        for setting in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            self.run("node", "sh", "-c", f"echo 1 > /proc/sys/{setting.replace('.', '/')}")
        self.run("pod", "ip", "route", "add", "default", "via", "10.244.0.1")
        self.run("pod", "ip", "-6", "route", "add", "default", "via", "fd00:10:244::1")

    def route(self, segment: str) -> None:
        """What the administrator does outside the cluster: the segment goes to the node."""
        via = "2001:db8:c::1" if ":" in segment else "192.0.2.1"
        self.run("client", "ip", "-6" if ":" in segment else "-4", "route", "add", segment, "via", via)

    def destroy(self) -> None:
        for role in ("client", "node", "pod"):
            subprocess.run(["ip", "netns", "del", self.name(role)], check=False, capture_output=True)

    def _join(self, role: str, theirs: tuple[str, ...], nodes: tuple[str, ...]) -> None:
        link = f"{role}-{self.suffix}"  # at most 15 characters
        inner = ("netns", self.name(role))
        _run("ip", "link", "add", link, "netns", self.name("node"), "type", "veth", "peer", "eth0", *inner)
        for where, device, addresses in ((role, "eth0", theirs), ("node", link, nodes)):
            for address in addresses:
                more = ("nodad",) if ":" in address else ()
                self.run(where, "ip", "addr", "add", address, "dev", device, *more)
            self.run(where, "ip", "link", "set", device, "up")

    # Talking

    def listen(self, role: str, port: int, host: str = "::") -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return within(
            self.name(role),
            lambda: socket.create_server((host, port), family=family, dualstack_ipv6=host == "::"),
        )

    def ask(self, address: str, port: int, seconds: float = 1.0) -> str:
        """What the client hears from the address; raises OSError if nothing."""

        def dial() -> str:
            with socket.create_connection((address, port), timeout=seconds) as connection:
                return connection.recv(100).decode()

        return within(self.name("client"), dial)


@asynccontextmanager
async def laboratory() -> AsyncIterator[Lab]:
    require_tools()
    lab = Lab()
    try:
        await asyncio.to_thread(lab.build)
        yield lab
    finally:
        await asyncio.to_thread(lab.destroy)


@asynccontextmanager
async def answering(listener: socket.socket, text: str) -> AsyncIterator[None]:
    """Says the text to whoever connects."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text.encode())
        writer.close()

    async with await asyncio.start_server(greet, sock=listener):
        yield


@asynccontextmanager
async def carrying(listener: socket.socket, port: int) -> AsyncIterator[None]:
    """Carries connections to this machine's loopback."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, ours))
                both.create_task(_pump(theirs, writer))
        except* OSError:
            pass  # one side went; the other is closed with it

    async with await asyncio.start_server(carry, sock=listener) as server:
        yield
        server.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout
