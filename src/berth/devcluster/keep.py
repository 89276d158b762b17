"""Keeps one cluster until it is told to stop: the foreground of `berth devcluster start`, and, run as a
program of its own, the process behind `--background` (see kept.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from berth.devcluster.cluster import ClusterOptions, DevCluster
from berth.devcluster.directory import READY
from berth.devcluster.faults import StartFailed, explained
from berth.devcluster.process import Process
from berth.errors import UserError

LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Keeper:
    """One life of a cluster, ended by SIGINT, SIGTERM or SIGHUP at any moment of it."""

    options: ClusterOptions
    on_ready: Callable[[DevCluster], None]
    controllers: str = ""
    ready: bool = False
    stopping: bool = False

    async def keep(self) -> bool:
        """Whether it ever got ready. Raises when a part of it dies by itself."""
        task = asyncio.ensure_future(self._serve())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop, task)
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return self.ready

    def _stop(self, task: asyncio.Task[None]) -> None:
        """Once: a second Ctrl-C must not interrupt the stop that the first one began."""
        if not self.stopping:
            self.stopping = True
            task.cancel()

    async def _serve(self) -> None:
        async with DevCluster(self.options) as cluster:
            parts = [cluster.etcd, cluster.apiserver]
            if self.controllers:
                parts.append(await cluster.start_controller_manager(self.controllers))
            self.ready = True
            self.on_ready(cluster)
            await self._watch(parts)

    async def _watch(self, parts: list[Process]) -> None:
        while True:
            for part in parts:
                if not part.running:
                    raise StartFailed.of(part.name, part.log, "ended")
            await asyncio.sleep(LOOK_SECONDS)


def main(directory: Path, port: int, durable: bool, controllers: str) -> None:
    """In the background. One line on standard output tells the waiting command how the start went."""
    options = ClusterOptions(directory=directory, port=port, durable=durable)
    try:
        asyncio.run(Keeper(options, _tell_ready, controllers).keep())
    except UserError as error:
        _tell(str(error))
        sys.exit(str(error))


def _tell_ready(cluster: DevCluster) -> None:
    with explained(str(cluster.directory)):
        (cluster.directory / READY).touch()
    _tell(READY)


def _tell(line: str) -> None:
    """The first line is the only one: the command that reads it goes away."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "durable", sys.argv[4])
