"""One child process that dies with its owner: etcd, kube-apiserver, kube-controller-manager.

Plain Popen rather than asyncio's: a cluster shared by many tests is stopped and restarted from whichever
event loop happens to run, and asyncio's processes belong to the loop that started them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from berth.devcluster import launch
from berth.devcluster.faults import StartFailed

POLL_SECONDS = 0.02


class Process:
    """A command with its log file; may be started again after it has stopped."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    @property
    def pid(self) -> int | None:
        return self._child.pid if self.running and self._child else None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """A session of its own: Ctrl-C at the terminal is for the owner, who then stops this in order."""
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", launch.__file__, str(os.getpid()), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                start_new_session=True,
            )

    async def ready(self, check: Callable[[], Awaitable[bool]], seconds: float) -> None:
        """Waits until the check says yes; fails at once when the process is gone."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not await check():
            if not self.running:
                raise StartFailed.of(self.name, self.log, "ended")
            if asyncio.get_running_loop().time() > deadline:
                raise StartFailed.of(self.name, self.log, f"was not ready after {seconds:.0f} s")
            await asyncio.sleep(POLL_SECONDS)

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, and SIGKILL for what is left when the time is up. What has stopped is left alone."""
        self._signal(signal.SIGTERM)
        if not await self._ended(grace_seconds):
            await self.kill()

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        await self._ended(10)

    def send(self, number: signal.Signals) -> None:
        """For fault tests: SIGSTOP, SIGCONT."""
        self._signal(number)

    def _signal(self, number: signal.Signals) -> None:
        if self.running and self._child:
            os.killpg(self._child.pid, number)

    async def _ended(self, seconds: float) -> bool:
        for _ in range(round(seconds / POLL_SECONDS)):
            if not self.running:
                return True
            await asyncio.sleep(POLL_SECONDS)
        return not self.running
