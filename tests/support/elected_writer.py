"""A process that writes ConfigMaps while it leads: what the tests on leadership start, stop and continue.

    python -m tests.support.elected_writer KUBECONFIG NAMESPACE IDENTITY LEASE_SECONDS

It says on its standard output when it leads and how it ended. SIGTERM is a clean stop. On SIGUSR1 it stops
itself with SIGSTOP at the worst moment, right before its next write.
"""

from __future__ import annotations

import asyncio
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
    client: Client
    namespace: str
    identity: str
    stop_before_next: bool = False

    async def work(self) -> None:
        say("leading")
        number = 0
        while True:
            if self.stop_before_next:
                self.stop_before_next = False
                os.kill(os.getpid(), signal.SIGSTOP)
            await self.write(number)
            number += 1
            await asyncio.sleep(0.05)

    async def write(self, number: int) -> None:
        name = f"{self.identity}-{number}"
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        try:
            await self.client.create(CONFIG_MAPS, obj, self.namespace)
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
        async with Client(credentials, guard=elector.guard) as client:
            writer = Writer(client, namespace, identity)
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, writer.stop_soon)
            try:
                await elector.run(writer.work)
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
