"""A TCP proxy that spoils some requests: passes them on and cuts the line before the answer, answers
429 or 503 itself, or cuts at once. Which, is drawn from a seeded generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

REFUSED = (
    b"HTTP/1.1 %d Nope\r\nContent-Length: 2\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{}"
)


class Spoiler:
    def __init__(self, port: int, share: float, random: Random) -> None:
        self._port = port
        self._share = share
        self._random = random
        self.spoiled = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request per connection, so that each gets its own fate."""
        with suppress(OSError, asyncio.IncompleteReadError):
            request = await self._request(reader)
            fate = (
                self._random.choice(["cut", "lose", "429", "503"])
                if self._random.random() < self._share
                else ""
            )
            self.spoiled += bool(fate)
            if fate in ("429", "503"):
                writer.write(REFUSED % int(fate))
            elif fate != "cut":
                answer = await self._forward(request)
                if fate != "lose":
                    writer.write(answer)
            await writer.drain()
        writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        return head + await reader.readexactly(length)

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def spoiling(port: int, share: float, seed: int) -> AsyncIterator[tuple[Spoiler, int]]:
    spoiler = Spoiler(port, share, Random(seed))
    server = await asyncio.start_server(spoiler.serve, "127.0.0.1", 0)
    try:
        yield spoiler, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
