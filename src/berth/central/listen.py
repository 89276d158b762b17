"""Where the API listens, and with which certificates. New TLS files are a new context, never the old one
loaded again: that would only ever add client CAs, and a session ticket of the old one would still open the
door. Only the accepting is exchanged; the socket, and who waits in its queue, stays.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from berth import log
from berth.central import answers
from berth.central.answers import HttpRefusal
from berth.central.app import IpamApi
from berth.central.settings import ApiLimits, Tls
from berth.errors import UserError

STOP_SECONDS = 5.0
BACKLOG = 1024


def bind(text: str) -> socket.socket:
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise UserError(f"--listen must be host:port, for example 127.0.0.1:3000, not {text!r}.")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=BACKLOG)
    except OSError as cause:
        busy = cause.errno == errno.EADDRINUSE
        why = "is in use by another process" if busy else f"cannot be used ({cause})"
        raise UserError(f"{text} {why}; choose another with --listen.") from cause


def address_of(bound: socket.socket, tls: Tls) -> str:
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls.certificate else 'http'}://{shown}:{port}"


class TlsContext(ssl.SSLContext):
    """What one state of the TLS files serves; `clients` tells one set of client CAs from another."""

    clients: bytes = b""


def tls_context(tls: Tls) -> TlsContext | None:
    if tls.certificate is None:
        return None
    context = TlsContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key, password="")  # never asks the terminal for one
        if tls.client_ca is not None:
            context.clients = _digest(tls.client_ca)
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
            if context.clients != _digest(tls.client_ca):
                raise UserError("The TLS files cannot be used: they changed while they were read.")
    except (OSError, ssl.SSLError) as cause:
        raise UserError(f"The TLS files cannot be used: {cause}.") from cause
    return context


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


class _Handler(web.RequestHandler):
    """What is no HTTP is answered like everything else, and never echoed: it may hold a secret."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(self._manager, _Server)
        if not self._manager.trusts(transport):  # its handshake began before the client CAs changed
            self.force_close()

    def end(self) -> None:
        """With the answer to the request it is at, at once when there is none."""
        if self._current_request is None:
            self.force_close()
        else:
            self.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun already")
        response = answers.refused(HttpRefusal(status, "the request cannot be read as HTTP", "Unparsable"))
        response.force_close()
        return response


class _Server(web.Server):
    context: TlsContext | None = None

    def __call__(self) -> web.RequestHandler:
        return _Handler(self, loop=self._loop, **self._kwargs)

    def trusts(self, transport: asyncio.BaseTransport) -> bool:
        theirs: TlsContext | None = transport.get_extra_info("sslcontext")
        return self.context is None or (theirs is not None and theirs.clients == self.context.clients)

    def end_strangers(self) -> None:
        for connection in self.connections:
            assert isinstance(connection, _Handler)
            if connection.transport is not None and not self.trusts(connection.transport):
                connection.end()


class OpenPort:
    """`renew` serves new connections with other certificates."""

    def __init__(self, bound: socket.socket, server: _Server, runner: web.ServerRunner) -> None:
        self._bound = bound
        self._server = server
        self._runner = runner
        self._site: web.SockSite | None = None

    async def renew(self, context: TlsContext | None) -> None:
        """Connections that are open go on, unless the client CAs are others: then each ends with the request
        it is at, since a certificate of theirs may be no good any more.
        """
        accepting = self._bound.dup()  # the queue outlives whoever accepts from it
        if self._site is not None:
            await self._site.stop()
        self._server.context = context
        self._server.end_strangers()
        self._site = web.SockSite(self._runner, accepting, ssl_context=context, backlog=BACKLOG)
        await self._site.start()


@asynccontextmanager
async def listening(
    api: IpamApi, bound: socket.socket, limits: ApiLimits, context: TlsContext | None
) -> AsyncIterator[OpenPort]:
    server = _Server(
        api,
        access_log=None,
        logger=log.SILENT,
        keepalive_timeout=limits.idle_seconds,
        lingering_time=1.0,
        auto_decompress=False,  # a small body stays small
    )
    runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    port = OpenPort(bound, server, runner)
    try:
        await port.renew(context)
        yield port
    finally:
        bound.close()
        await runner.cleanup()
