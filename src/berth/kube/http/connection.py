"""One connection to a server: one exchange at a time, or one stream; thrown away when anything is odd.

Between `pool.py`, which keeps connections, and `wire.py`, which reads answers. A cancelled, late or broken
exchange takes its connection with it, so an answer can never reach another request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from berth.kube.http.wire import Malformed, Reading

# Below the 90 s after which an API server closes an idle connection, so that we are the one who lets go.
IDLE_SECONDS = 30.0
# A stream whose reader is slower than the server stops reading here and goes on when the reader has caught
# up.
STREAM_BYTES = 4 << 20


class Connection(asyncio.Protocol):
    """One socket. `exchange` for a whole answer, `stream` for one without an end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reading: Reading | None = None
        self._streaming = False
        self._held = False
        self._watchdog: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._heard_at = 0.0
        self.closed = self._loop.create_future()
        self.exchanges = 0

    # What the event loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        _probe_when_idle(transport.get_extra_info("socket"))
        self._heard_at = self._loop.time()

    def data_received(self, data: bytes) -> None:
        reading = self._reading
        if reading is None:
            self.abort(Malformed("the server spoke without being asked"))
            return
        try:
            reading.feed(data)
        except Malformed as error:
            self.abort(error)
            return
        if self._streaming:
            self._heard_at = self._loop.time()
            self._hold_back(reading)
            self._wake()
        elif reading.done:
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._error is None and self._reading is not None:
            self._error = error or self._ended(self._reading)
        self._transport = None
        self.closed.set_result(None)
        self._wake()

    def _ended(self, reading: Reading) -> Exception | None:
        try:
            if not reading.done:
                reading.end()
        except Malformed as error:
            return error
        return None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the pool asks

    @property
    def usable(self) -> bool:
        """Open, and not idle for so long that the server may be about to close it."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._reading is not None:
            return False
        return self._loop.time() - self._heard_at < IDLE_SECONDS

    async def exchange(self, message: bytes, seconds: float) -> Reading:
        """Sends a request and reads the whole answer, within so many seconds."""
        reading = self._start(message)
        limit = self._loop.call_later(seconds, self.abort, TimeoutError())
        try:
            while not reading.done:
                await self._wait()
        except BaseException:
            self.abort()
            raise
        finally:
            limit.cancel()
        self._finish(reading)
        return reading

    @asynccontextmanager
    async def stream(self, message: bytes, silence_seconds: float) -> AsyncIterator[Reading]:
        """Sends a request and gives its answer once the head is in; read on with `chunks`."""
        self._streaming = True
        reading = self._start(message)
        self._heard_at = self._loop.time()
        self._listen(silence_seconds)
        try:
            while not reading.status:
                await self._wait()
            yield reading
        finally:
            self.abort()
            if self._watchdog is not None:
                self._watchdog.cancel()

    async def chunks(self, reading: Reading) -> AsyncGenerator[bytes]:
        """The body of a stream as it comes."""
        while True:
            if reading.parts:
                data = b"".join(reading.parts)
                reading.parts.clear()
                self._let_go()
                yield data
            elif reading.done:
                return
            else:
                await self._wait()

    def abort(self, error: Exception | None = None) -> None:
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self._transport.abort()
        if error is not None:
            self._wake()

    def _start(self, message: bytes) -> Reading:
        if self._transport is None or self._transport.is_closing():
            raise Malformed("the connection was cut")
        reading = self._reading = Reading()
        self._transport.write(message)
        return reading

    def _finish(self, reading: Reading) -> None:
        self.exchanges += 1
        self._reading = None
        self._heard_at = self._loop.time()
        if not reading.keep:
            self.abort()

    async def _wait(self) -> None:
        """Until something came. Errors are raised to whoever still waits: an answer that is complete counts,
        whatever became of the connection right after it."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _hold_back(self, reading: Reading) -> None:
        if not self._held and self._transport and sum(map(len, reading.parts)) > STREAM_BYTES:
            self._held = True
            self._transport.pause_reading()

    def _let_go(self) -> None:
        if self._held and self._transport is not None:
            self._held = False
            self._transport.resume_reading()

    def _listen(self, silence_seconds: float) -> None:
        """Ends a stream that has been silent for too long; looks when it could be, not after every byte."""
        left = self._heard_at + silence_seconds - self._loop.time()
        if left <= 0:
            self.abort(TimeoutError())
        else:
            self._watchdog = self._loop.call_later(left, self._listen, silence_seconds)


def _probe_when_idle(sock: socket.socket | None) -> None:
    """Lets the kernel find out within ten seconds that the other end is gone without a word: host or route
    dead, state lost on the way. Systems without these knobs have the silence limit."""
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
