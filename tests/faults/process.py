"""Operators as real processes that can be killed: forked from a warm server, so that a try costs no start-up.

Killing is SIGKILL to that one process, by its id.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from berth import log
from berth.run import operate
from berth.settings import Settings


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.process"])
    return context


def _main(settings: Settings, log_file: str) -> None:
    with Path(log_file).open("a", buffering=1) as stream:
        log.configure("debug", stream)
        asyncio.run(operate(settings))


@dataclass(slots=True)
class OperatorProcess:
    process: ForkServerProcess

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def kill(self) -> None:
        """SIGKILL: it can do nothing more."""
        self.process.kill()
        self.process.join(10)


def start(settings: Settings, log_file: Path) -> OperatorProcess:
    process = _context().Process(target=_main, args=(settings, str(log_file)), daemon=True)
    process.start()
    return OperatorProcess(process)


@asynccontextmanager
async def operator(settings: Settings, log_file: Path) -> AsyncIterator[OperatorProcess]:
    running = await asyncio.to_thread(start, settings, log_file)
    try:
        yield running
    finally:
        await asyncio.to_thread(running.kill)
