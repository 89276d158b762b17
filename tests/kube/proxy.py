"""A TCP proxy before the real API server that can break the way a network does."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from berth.kube import auth
from berth.kube.auth import Credentials


class Proxy:
    """Passes bytes on; `cut()` ends every connection and takes no new one until `mend()`, `freeze()` keeps
    all connections open and passes nothing on."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._is_cut = False
        self.port = 0

    def cut(self) -> None:
        self._is_cut = True
        for line in list(self._lines):
            line.transport.abort()

    def freeze(self) -> None:
        """What runs now stays frozen for good; connections made after `mend` work."""
        self._open.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._open = asyncio.Event()
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        there = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._pass(source, sink, self._open))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event
    ) -> None:
        self._lines.add(sink)
        try:
            while data := await source.read(1 << 16):
                await gate.wait()
                sink.write(data)
                await sink.drain()
        except ConnectionError:
            pass
        finally:
            self._lines.discard(sink)
            sink.close()

    async def end(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def proxied(kubeconfig: Path) -> AsyncIterator[tuple[Proxy, Credentials]]:
    """A proxy before that cluster, and credentials that go through it."""
    body = _read(kubeconfig)
    section = body["clusters"][0]["cluster"]
    proxy = Proxy(urlsplit(section["server"]).port or 443)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    section["server"] = f"https://127.0.0.1:{proxy.port}"
    try:
        yield proxy, _load(kubeconfig, body)
    finally:
        listener.close()
        await proxy.end()


def _read(kubeconfig: Path) -> Any:
    return yaml.safe_load(kubeconfig.read_text())


def _load(original: Path, body: object) -> Credentials:
    """Written beside the original, whose paths may be relative."""
    with tempfile.NamedTemporaryFile("w", dir=original.parent) as file:
        yaml.safe_dump(body, file)
        file.flush()
        return auth.load(Path(file.name))
