"""The test's side of `mortal.py`: lives of an API server, one after the other on the same store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from tests.support.central import Reply, request_body
from tests.support.processes import is_alive, wait_until
from tests.support.started import ROOT


@dataclass(slots=True)
class Life:
    """One server process. `ask` answers None once it is dead: whether the request took effect is unknown."""

    pid: int
    port: int
    session: aiohttp.ClientSession
    silent: bool = False  # a request got no answer; a dying process may look alive a moment longer than that

    async def ask(self, method: str, service: str, **changes: Any) -> Reply | None:
        path = "/v2/address" if method == "POST" else "/v2/service"
        return await self.send(method, path, request_body(service, **changes))

    async def send(self, method: str, path: str, body: Any, **headers: str) -> Reply | None:
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            async with self.session.request(method, url, json=body, headers=headers) as response:
                return Reply(response.status, await response.json())
        except (aiohttp.ClientError, OSError):
            self.silent = True
            return None

    @property
    def alive(self) -> bool:
        return is_alive(self.pid)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(self.pid))


class Lives:
    def __init__(self, process: subprocess.Popen[str], database: str, pepper: Path) -> None:
        self._process = process
        self._order = {"database": database, "pepper": str(pepper)}
        self._started: list[Life] = []

    def start(self, session: aiohttp.ClientSession, at: int = 0, **how: Any) -> Life:
        """`how`: writes, power, plant, as `mortal.py` tells."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {**self._order, "at": at, **how}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self._started.append(Life(answer["pid"], answer["port"], session))
        return self._started[-1]

    @property
    def deaths(self) -> int:
        """How many died of what they were told to die of."""
        return sum(life.silent for life in self._started)

    def end(self) -> None:
        """A life that goes on would keep its parent's output open."""
        for life in self._started:
            if life.alive:
                life.kill()


@contextmanager
def lives(database: str, pepper: Path) -> Iterator[Lives]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.mortal"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    run = Lives(process, database, pepper)
    try:
        yield run
    finally:
        run.end()
        process.communicate()
