"""One HTTP exchange with the API server: the seam under `client.py`, and the only place that knows aiohttp.

It is the hot path of every controller, so it does the least: connections are kept and reused, URLs are
built already encoded, bodies are bytes in and bytes out, no cookies, no redirects, no decompression, no
environment. A failed exchange is `Unreachable`: whether the server acted is unknown, and a write is never
sent twice.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
from aiohttp import hdrs
from yarl import URL

from berth.errors import Unreachable
from berth.kube.auth import Access, Credentials

JSON = "application/json"
CONNECT_SECONDS = 10.0
# Below the 90 s after which an API server closes an idle connection, so that we are the one who lets go.
IDLE_SECONDS = 30.0
# Bytes buffered per connection before the socket is left waiting; a page of 500 objects is about a megabyte.
READ_BUFFER = 1 << 20

FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError)


@dataclass(frozen=True, slots=True)
class Request:
    """What to send; the path carries its query already encoded."""

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict, repr=False)


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str


class Transport:
    """A pool of connections to one server; an async context manager owns it."""

    def __init__(self, credentials: Credentials, user_agent: str, timeout_seconds: float) -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_SECONDS)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            # Callers are limited before they get here (see Client), so waiting never eats a request's
            # timeout.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={
                hdrs.USER_AGENT: self._user_agent,
                hdrs.ACCEPT: JSON,
                hdrs.ACCEPT_ENCODING: "identity",
            },
            skip_auto_headers=(hdrs.CONTENT_TYPE,),
            timeout=self._timeout,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: Request, access: Access) -> Answer:
        """One exchange, body read whole."""
        try:
            response = await self._start(request, access, self._timeout)
            body = await response.read()
        except FAILURES as error:
            raise self._unreachable(request, error) from error
        return Answer(response.status, body, response.headers.get(hdrs.RETRY_AFTER, ""))

    @asynccontextmanager
    async def stream(
        self, request: Request, access: Access, silence_seconds: float
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """An exchange whose body has no end: only silence is timed."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        try:
            response = await self._start(request, access, timeout)
            try:
                yield response
            finally:
                response.close()
        except FAILURES as error:
            raise self._unreachable(request, error) from error

    async def _start(
        self, request: Request, access: Access, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with`")
        return await self._session.request(
            request.method,
            URL(self._credentials.server + request.path, encoded=True),
            data=request.body,
            headers=self._headers(request, access),
            allow_redirects=False,
            timeout=timeout,
            ssl=access.tls or False,
            server_hostname=self._credentials.server_name,
            middlewares=() if request.method == hdrs.METH_GET else (_once,),
        )

    def _headers(self, request: Request, access: Access) -> dict[str, str]:
        headers = dict(request.headers)
        if access.authorization:
            headers[hdrs.AUTHORIZATION] = access.authorization
        if request.body is not None:
            headers[hdrs.CONTENT_TYPE] = request.content_type
        return headers

    def _unreachable(self, request: Request, error: BaseException) -> Unreachable:
        path = request.path.partition("?")[0]
        return Unreachable(f"{request.method} {path} on {self._credentials.server}: {_why(error)}")


async def _once(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
    """aiohttp repeats PUT and DELETE when a kept connection turns out to be closed. The server may have
    acted on
    the first one, so for us a cut is a cut: another type of error passes its retry by."""
    try:
        response: aiohttp.ClientResponse = await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Cut(_why(error)) from error
    return response


class _Cut(aiohttp.ClientError):
    """A connection that broke during a write."""


def _why(error: BaseException) -> str:
    """The cause in a few words; aiohttp's own texts repeat the address and may be empty."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is not trusted ({_certificate_fault(error.certificate_error)})"
        case aiohttp.ClientConnectorSSLError():
            return "TLS could not be agreed"
        case aiohttp.ClientConnectorDNSError():
            return "its name cannot be resolved"
        case aiohttp.ClientConnectorError():
            return (error.os_error.strerror or str(error.os_error)).lower()
        case asyncio.TimeoutError():
            return "no answer in time"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return "the connection was cut"
        case _:
            return str(error) or type(error).__name__


def _certificate_fault(error: Exception) -> str:
    return str(getattr(error, "verify_message", "") or error).rstrip(".")
