"""Load for the IPAM-API: many keep-alive connections in one process, each with one request under way.
Requests are made beforehand as bytes and answers are only looked at as far as needed, so that the
generator costs little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import orjson


@dataclass(slots=True)
class Tally:
    """What came back."""

    latencies: list[float] = field(default_factory=list)
    failures: int = 0
    addresses: list[bytes] = field(default_factory=list)

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000, 2) if ordered else 0.0


class Connection(asyncio.Protocol):
    """Sends the next request as soon as the last one is answered."""

    def __init__(self, requests: Iterator[bytes], tally: Tally, done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._tally = tally
        self._done = done
        self._buffer = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._next()

    def _next(self) -> None:
        assert self._transport is not None
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._sent = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, mark, body = self._buffer.partition(b"\r\n\r\n")
        if not mark or len(body) < _length(head):
            return
        self._tally.latencies.append(time.perf_counter() - self._sent)
        if head.startswith(b"HTTP/1.1 200"):
            self._tally.addresses.append(body)
        else:
            self._tally.failures += 1
        self._buffer = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)


def _length(head: bytes) -> int:
    at = head.find(b"Content-Length: ")
    end = head.find(b"\r\n", at)
    return int(head[at + 16 : end if end > 0 else None])


def request(method: str, path: str, body: Mapping[str, object]) -> bytes:
    raw = orjson.dumps(body)
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


async def drive(ports: list[int], clients: int, requests: list[bytes]) -> tuple[Tally, float]:
    """Send them all, over `clients` connections spread over the ports; the tally and the seconds it took."""
    loop = asyncio.get_running_loop()
    tally, source = Tally(), iter(requests)
    ends = [loop.create_future() for _ in range(clients)]
    began = time.perf_counter()
    for number, end in enumerate(ends):
        port = ports[number % len(ports)]
        await loop.create_connection(lambda end=end: Connection(source, tally, end), "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*ends)
    return tally, time.perf_counter() - began
