"""Operators as real processes that can be killed: forked from a warm server, so that a try costs no start-up.

Any other controller is given as a command. Signals go to that one process, by its id. A bug may be planted in
the child, from here, never in src/.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Protocol

from tests.faults import plants, scales

from berth import log
from berth.errors import NotLeader, UserError
from berth.run import operate
from berth.settings import Settings

LOOK_SECONDS = 0.1
KNOWN = {**plants.PLANTS, **scales.SCALES}


def context() -> ForkServerContext:
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(
        ["tests.faults.process", "tests.faults.auditor", "tests.faults.store_auditor"]
    )
    return found


def _main(settings: Settings, log_file: str, changes: tuple[str, ...]) -> None:
    for change in changes:
        KNOWN[change]()
    with Path(log_file).open("a", buffering=1) as stream:
        log.configure("debug", stream)
        try:
            asyncio.run(operate(settings))
        except* (NotLeader, UserError):
            pass  # it ends, as it should; whoever started it sees that


class Running(Protocol):
    """A controller at work, ours or another's."""

    @property
    def alive(self) -> bool: ...
    @property
    def memory(self) -> int: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def go_on(self) -> None: ...


def memory_of(pid: int | None) -> int:
    """Resident, in bytes; 0 where nobody can tell."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Child:
    process: ForkServerProcess
    killed: bool = False  # by the row

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    @property
    def memory(self) -> int:
        return memory_of(self.process.pid)

    def kill(self) -> None:
        """SIGKILL: it can do nothing more."""
        self.killed = True
        self.process.kill()
        self.process.join(10)

    @property
    def died(self) -> int:
        """The code it ended with, by itself and not as it should; else 0."""
        return 0 if self.killed or self.alive else self.process.exitcode or 0

    def stop(self) -> None:
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self.alive and self.process.pid is not None:
            os.kill(self.process.pid, number)


@dataclass(slots=True)
class Spawned:
    """A controller given as a command."""

    process: subprocess.Popen[bytes]
    killed: bool = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def memory(self) -> int:
        return memory_of(self.process.pid)

    def kill(self) -> None:
        self.killed = True
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def start(target: Callable[..., None], *arguments: Any) -> Child:
    process = context().Process(target=target, args=arguments, daemon=True)
    process.start()
    return Child(process)


@asynccontextmanager
async def operator(
    settings: Settings, log_file: Path, changes: tuple[str, ...] = (), found: list[str] | None = None
) -> AsyncIterator[Child]:
    """`found` is told of one that died by itself."""
    running = await asyncio.to_thread(start, _main, settings, str(log_file), changes)
    try:
        yield running
    finally:
        if running.died and found is not None:
            found.append(f"an operator died by itself, with code {running.died}: {log_file.name}")
        await asyncio.to_thread(running.kill)


@dataclass(frozen=True, slots=True)
class Command:
    """`{kubeconfig}`, `{namespace}` and `{dialect}` are filled in; KUBECONFIG is set too. `kept` is started
    again whenever it ends by itself, as a Deployment does: many do that on purpose."""

    words: str
    environment: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False

    @asynccontextmanager
    async def running(self, settings: Settings, log_file: Path) -> AsyncIterator[Spawned]:
        filled = {
            "kubeconfig": str(settings.kubeconfig),
            "namespace": settings.namespace,
            "dialect": settings.dialects[0],
        }
        words = [word.format(**filled) for word in shlex.split(self.words)]
        environment = {**os.environ, **self.environment, "KUBECONFIG": filled["kubeconfig"]}
        spawn = partial(_spawn, words, environment, log_file)
        child = Spawned(await asyncio.to_thread(spawn))
        keeping = asyncio.create_task(_keep(child, spawn)) if self.kept else None
        try:
            yield child
        finally:
            await asyncio.to_thread(child.kill)
            if keeping is not None:
                await keeping


async def _keep(child: Spawned, spawn: Callable[[], subprocess.Popen[bytes]]) -> None:
    """Until it is killed; also if that is while it comes back."""
    while not child.killed:
        await asyncio.sleep(LOOK_SECONDS)
        if not child.alive and not child.killed:
            child.process = await asyncio.to_thread(spawn)
    child.kill()


def _spawn(words: list[str], environment: Mapping[str, str], log_file: Path) -> subprocess.Popen[bytes]:
    with log_file.open("ab") as out:
        return subprocess.Popen(words, env=environment, stdout=out, stderr=subprocess.STDOUT)
