"""The connections to one server: kept, reused, and distrusted together when one of them falls silent.

Between `transport.py`, which knows requests, and `connection.py`, which carries one exchange at a time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from berth.kube.http.connection import Connection
from berth.kube.http.wire import Malformed, Reading

CONNECT_SECONDS = 10.0

Guard = Callable[[], None]


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where to connect; `name` is what the server's certificate must say."""

    host: str
    port: int
    name: str


class ConnectionPool:
    """The connections to one place. The last one used is the next one used, so the others can grow old and
    go.
    """

    def __init__(self, place: ServerAddress) -> None:
        self._place = place
        self._idle: list[tuple[ssl.SSLContext | None, Connection]] = []
        self._open: set[Connection] = set()

    async def exchange(
        self, message: bytes, tls: ssl.SSLContext | None, seconds: float, *, repeatable: bool, guard: Guard
    ) -> Reading:
        """One exchange. Only what is repeatable is sent again, when a kept connection turns out to be
        closed. The guard is asked when a connection is at hand, since opening one can take seconds; between
        its word and the bytes nothing else runs.
        """
        while True:
            connection = await self._take(tls)
            try:
                guard()
            except BaseException:
                self._give_back(tls, connection)
                raise
            kept = connection.exchanges > 0
            try:
                reading = await connection.exchange(message, seconds)
            except TimeoutError:
                self.suspect()
                raise
            except (OSError, Malformed):
                if repeatable and kept:
                    continue
                raise
            self._give_back(tls, connection)
            return reading

    async def connect(self, tls: ssl.SSLContext | None) -> Connection:
        """A connection of one's own."""
        place = self._place
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection,
                place.host,
                place.port,
                ssl=tls,
                server_hostname=place.name if tls else None,
            )
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def suspect(self) -> None:
        """One connection got no answer, so the way may be broken: the next request makes a new one."""
        for _, connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def close(self) -> None:
        self._idle.clear()
        waiting = [connection.closed for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if waiting:
            await asyncio.wait(waiting)

    async def _take(self, tls: ssl.SSLContext | None) -> Connection:
        while self._idle:
            context, connection = self._idle.pop()
            if context is tls and connection.usable:
                return connection
            connection.abort()
        return await self.connect(tls)

    def _give_back(self, tls: ssl.SSLContext | None, connection: Connection) -> None:
        if connection.usable:
            self._idle.append((tls, connection))
        if self._idle and not self._idle[0][1].usable:
            self._idle.pop(0)[1].abort()
