"""One HTTP exchange with the API server: the seam under `client.py`.

It is the hot path of every controller, so it does the least: the head of a request is put together from
parts made once, bodies are bytes in and bytes out; no cookies, redirects, compression or proxies from the
environment. An exchange that fails is `Unreachable`: whether the server acted is unknown, and a write is
never sent twice.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from berth.errors import Unreachable
from berth.kube.auth import Credentials, RequestAuth
from berth.kube.http.pool import ConnectionPool, Guard, ServerAddress
from berth.kube.http.wire import Malformed

JSON = "application/json"
FAILURES = (OSError, Malformed)  # an SSLError and a TimeoutError are OSErrors


@dataclass(frozen=True, slots=True)
class Request:
    """What to send. The path carries its query, encoded; the verb is the one Kubernetes has for it."""

    method: str
    path: str
    verb: str
    body: bytes | None = field(default=None, repr=False)
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_read(self) -> bool:
        return self.method in ("GET", "HEAD")


class Response(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]


class Stream(NamedTuple):
    """An answer whose body is still coming."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncGenerator[bytes]


class Transport:
    """The connections to one API server."""

    def __init__(self, credentials: Credentials, user_agent: str, timeout_seconds: float) -> None:
        self._server = credentials.server
        self._timeout_seconds = timeout_seconds
        url = urlsplit(credentials.server)
        host = url.hostname or ""
        port = url.port or (443 if url.scheme == "https" else 80)
        self._prefix = url.path
        self._pool = ConnectionPool(ServerAddress(host, port, credentials.server_name or host))
        self._common = (
            f" HTTP/1.1\r\nHost: {url.netloc.rpartition('@')[2]}\r\nUser-Agent: {user_agent}\r\n"
            f"Accept: {JSON}\r\nAccept-Encoding: identity\r\n"
        )

    async def close(self) -> None:
        await self._pool.close()

    async def send(self, request: Request, access: RequestAuth, guard: Guard) -> Response:
        """One exchange, body read whole; the guard has the last word before anything is sent."""
        message = self._message(request, access)
        try:
            reading = await self._pool.exchange(
                message, access.tls, self._timeout_seconds, repeatable=request.is_read, guard=guard
            )
        except FAILURES as error:
            raise self._unreachable(request, error) from error
        return Response(reading.status, b"".join(reading.parts), reading.headers)

    @asynccontextmanager
    async def stream(
        self, request: Request, access: RequestAuth, silence_seconds: float
    ) -> AsyncIterator[Stream]:
        """An exchange whose body has no end, on a connection of its own; only silence is timed."""
        try:
            connection = await self._pool.connect(access.tls)
            async with connection.stream(self._message(request, access), silence_seconds) as reading:
                yield Stream(reading.status, reading.headers, connection.chunks(reading))
        except FAILURES as error:
            if isinstance(error, TimeoutError):
                self._pool.suspect()
            raise self._unreachable(request, error) from error

    def _message(self, request: Request, access: RequestAuth) -> bytes:
        head = f"{request.method} {_clean(self._prefix + request.path)}{self._common}"
        if access.authorization:
            head += f"Authorization: {_clean(access.authorization)}\r\n"
        for name, value in request.headers.items():
            head += f"{_clean(name)}: {_clean(value)}\r\n"
        if request.body is None:
            return f"{head}\r\n".encode("latin-1")
        head += f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n\r\n"
        return head.encode("latin-1") + request.body

    def _unreachable(self, request: Request, error: Exception) -> Unreachable:
        path = request.path.partition("?")[0]
        return Unreachable(f"{request.method} {path} on {self._server}: {why(error)}")


def _clean(text: str) -> str:
    """A line end smuggled into a path or header would start another request."""
    if not text.isprintable():
        raise ValueError("a request's path and headers must be printable")
    return text


def why(error: Exception) -> str:
    """The cause in a few words."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted ({error.verify_message.rstrip('.')})"
        case ssl.SSLError():
            return "TLS could not be agreed"
        case TimeoutError():
            return "no answer in time"
        case socket.gaierror():
            return "its name cannot be resolved"
        case ConnectionRefusedError():
            return "connection refused"
        case ConnectionError():
            return "the connection was cut"
        case OSError():
            return (error.strerror or str(error)).lower()
        case _:
            return str(error)
