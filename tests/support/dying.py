"""An operator that dies at a chosen write: before it is sent, or after it was stored and before it knows.

In this process, so that a hundred deaths take minutes; the bench in tests/faults kills real processes.
A dead operator writes nothing more, whatever its tasks still try, and is then cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import orjson
from tests.support.operator import running

from berth.devcluster import DevCluster
from berth.errors import Conflict, Unreachable
from berth.kube.client import Client
from berth.kube.http.transport import Request


@dataclass(slots=True)
class Fate:
    """`at` counts the writes that matter from 0; -1 lives on."""

    at: int = -1
    after: bool = False
    count: int = 0
    writes: list[str] = field(default_factory=list)  # method, path, and the name of what is made
    reads: list[str] = field(default_factory=list)  # of single objects
    died: asyncio.Event = field(default_factory=asyncio.Event)

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} write {self.at}"

    async def carry_out(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        if self.died.is_set():
            raise Unreachable("dead")
        number = self._number(request)
        if number != self.at:
            return await send()
        if self.after:
            await send()
        self.died.set()
        raise Unreachable("dead")

    def _number(self, request: Request) -> int | None:
        """Events and pools are written when there is time, in no order that could be repeated."""
        self.writes.append(f"{request.method} {request.path}{_made(request)}")
        if "/events" in request.path or "/ipgroups/" in request.path:
            return None
        self.count += 1
        return self.count - 1


def _made(request: Request) -> str:
    return f"/{orjson.loads(request.body or b'')['metadata'].get('name')}" if request.method == "POST" else ""


@dataclass(slots=True)
class Refusing(Fate):
    """Lives on; a write whose method and path begin and end so is refused, as if somebody had been faster."""

    method: str = "PATCH"
    ending: str = ""
    times: int = 1
    refused: int = 0

    async def carry_out(self, request: Request, send: Callable[[], Awaitable[Any]]) -> Any:
        is_meant = request.method == self.method and request.path.endswith(self.ending)
        if is_meant and self.refused < self.times:
            self.refused += 1
            raise Conflict(409, "somebody was faster", status_reason="Conflict")
        return await send()


@asynccontextmanager
async def dying(cluster: DevCluster, fate: Fate, **settings: Any) -> AsyncIterator[None]:
    class Mortal(Client):
        async def _write(self, request: Request) -> Any:
            return await fate.carry_out(request, lambda: Client._write(self, request))

        async def _read(self, path: str, verb: str) -> bytes:
            if verb == "get" and path.startswith("/api"):  # not the server's version
                fate.reads.append(path)
            return await Client._read(self, path, verb)

    with patch("berth.run.Client", Mortal):
        async with running(cluster, crds=(), **settings):
            yield
