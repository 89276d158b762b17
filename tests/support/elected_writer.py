"""A process that writes ConfigMaps while it leads: what the tests on leadership start, stop and continue.

    python -m tests.support.elected_writer KUBECONFIG NAMESPACE IDENTITY LEASE_SECONDS

It says on its standard output when it leads and how it ended. SIGTERM is a clean stop. On SIGUSR1 it stops
itself with SIGSTOP at the worst moment: its next write has its connection, and only the check and the bytes
are to come.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from berth import log
from berth.control.leader import Election, Elector
from berth.errors import NotLeader
from berth.kube import auth
from berth.kube.client import Client
from berth.kube.resource import Resource

CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
LOST = 3


@dataclass
class Writer:
    elector: Elector
    namespace: str
    identity: str
    stop_before_next: bool = False

    async def work(self, client: Client) -> None:
        say("leading")
        for number in itertools.count():
            await self.write(client, number)
            await asyncio.sleep(0.05)

    def guard(self) -> None:
        if self.stop_before_next:
            self.stop_before_next = False
            os.kill(os.getpid(), signal.SIGSTOP)
        self.elector.guard()

    async def write(self, client: Client, number: int) -> None:
        name = f"{self.identity}-{number}"
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        try:
            await client.create(CONFIG_MAPS, obj, self.namespace)
        except NotLeader:
            say("write refused")
            raise

    def stop_soon(self) -> None:
        self.stop_before_next = True


async def main(kubeconfig: str, namespace: str, identity: str, lease: str) -> int:
    credentials = auth.load(Path(kubeconfig))
    seconds = float(lease)
    election = Election(namespace, "writer", identity, seconds, seconds * 2 / 3, seconds * 2 / 15)
    async with Client(credentials) as free:
        elector = Elector(free, election)
        writer = Writer(elector, namespace, identity)
        async with Client(credentials, guard=writer.guard) as client:
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, writer.stop_soon)
            try:
                await elector.run(lambda: writer.work(client))
            except NotLeader:
                return LOST
    return 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def until_terminated(*arguments: str) -> int:
    task = asyncio.ensure_future(main(*arguments))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        return await task
    return 0


if __name__ == "__main__":
    log.configure()
    sys.exit(asyncio.run(until_terminated(*sys.argv[1:])))
