"""What can happen to watches on their way through the fault proxy.

Open streams are cut, ended by words of ours, or left half open; those that are asked for next are answered
with nothing, or with 410. Everything the server says in the meantime is lost, as it is in a network.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

HALF_A_LINE = b'{"type":"MODIFIED","object":{"apiVersion":"v1","metadata":{"na'


def error_event(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return (
        json.dumps({"type": "ERROR", "object": {**status, "message": "said by the proxy"}}).encode() + b"\n"
    )


@dataclass(eq=False, slots=True)
class Stream:
    request: web.Request
    response: web.StreamResponse
    half_open: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def abort(self) -> None:
        if self.request.transport is not None:
            self.request.transport.abort()


class Streams:
    def __init__(self) -> None:
        self._open: set[Stream] = set()
        self._instead: list[web.Response] = []  # for the next watches that are asked for
        self._known_from = 0  # the oldest version that can still be watched from
        self._late: dict[str, float] = {}  # beginning of a path → seconds

    def __len__(self) -> int:
        return len(self._open)

    # Faults

    def cut(self) -> None:
        """End every open watch without a word."""
        for stream in list(self._open):
            stream.abort()

    async def end_with(self, words: bytes, *, cleanly: bool) -> None:
        """Say this on every open watch, then end it: properly, or in the middle of the line."""
        for stream in list(self._open):
            try:
                await stream.response.write(words)
            except ConnectionError:
                continue
            if not cleanly:
                stream.abort()
            stream.ended.set()

    def leave_half_open(self) -> None:
        """From now on nothing more comes on the open watches, and nobody says that they are dead."""
        for stream in self._open:
            stream.half_open = True

    def answer_next(self, watches: int, status: int) -> None:
        """The next so many watches get this status and no event: 200 is an empty stream."""
        for _ in range(watches):
            self._instead.append(web.Response(status=200) if status == 200 else _expired())

    def forget_before(self, version: int) -> None:
        """As after a compaction: whoever watches from an older version must list again."""
        self._known_from = version
        self.cut()

    def come_late(self, path: str, seconds: float) -> None:
        """From now on whatever is said on watches of this path is heard only so much later."""
        self._late[path] = seconds

    def heal(self) -> None:
        self._instead.clear()
        self._late.clear()

    # What the proxy asks

    def instead(self, request: web.Request) -> web.Response | None:
        if not is_list(request) and int(request.query.get("resourceVersion") or 0) < self._known_from:
            return _expired()
        return self._instead.pop() if self._instead else None

    async def carry(
        self, request: web.Request, response: web.StreamResponse, content: aiohttp.StreamReader
    ) -> None:
        stream = Stream(request, response)
        self._open.add(stream)
        reading = asyncio.create_task(self._pump(stream, content))
        ending = asyncio.create_task(stream.ended.wait())
        try:
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(stream)
            ending.cancel()
            reading.cancel()
            await asyncio.gather(reading, ending, return_exceptions=True)

    async def _pump(self, stream: Stream, content: aiohttp.StreamReader) -> None:
        lines: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            saying = group.create_task(_say(stream, lines))
            async for line in content:
                lines.put_nowait((time.monotonic() + self._lag(stream.request.path), line))
            await lines.join()
            saying.cancel()
        if stream.half_open:
            await stream.ended.wait()

    def _lag(self, path: str) -> float:
        return max((late for start, late in self._late.items() if path.startswith(start)), default=0.0)


async def _say(stream: Stream, lines: asyncio.Queue[tuple[float, bytes]]) -> None:
    """Each line when it is due, in their order."""
    while True:
        due, line = await lines.get()
        if (early := due - time.monotonic()) > 0:
            await asyncio.sleep(early)
        if not stream.half_open:
            await stream.response.write(line)
        lines.task_done()


def is_list(request: web.Request) -> bool:
    """A watch that begins with all that is there, and so from no older version."""
    return request.query.get("sendInitialEvents") == "true"


def _expired() -> web.Response:
    return web.json_response(json.loads(error_event(410, "Expired"))["object"], status=410)
