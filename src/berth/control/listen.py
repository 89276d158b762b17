"""A listen address, and an HTTP server on it: what the probes, the metrics and the webhooks share.

Port 0 means any free one; `Server.port` then tells which. A busy port or an address that is not ours is a
sentence for the person at the terminal, named after the flag they have to change.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from dataclasses import dataclass, field
from typing import NamedTuple

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from berth import log
from berth.errors import UserError

ANY_V4 = "0.0.0.0"
BACKLOG = 128
# How long requests under way may take when the server stops.
STOP_SECONDS = 3.0


class Listen(NamedTuple):
    """Where to listen; an empty host means every address of this machine, both families."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listen(text: str, flag: str) -> Listen:
    """`host:port`, `[v6]:port` or `:port`; the flag is named when the text is neither."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    unclear = ":" in host and not bracketed
    if not colon or unclear or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UserError(f"{flag} must be host:port, for example 127.0.0.1:8080, not {text!r}.")
    return Listen(host[1:-1] if bracketed else host, int(port))


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs; whoever started it stops it."""

    runner: web.AppRunner
    host: str
    port: int
    busy: set[object] = field(default_factory=set)  # connections with a request under way

    async def stop(self) -> None:
        await self.runner.cleanup()

    def hang_up(self) -> None:
        """Make every client connect anew; a request under way is answered first."""
        for connection in self.runner.server.connections if self.runner.server else ():
            if connection in self.busy:
                connection.close()  # after the answer
            else:
                connection.force_close()


async def serve(
    app: web.Application, listen: Listen, flag: str, *, tls: ssl.SSLContext | None = None
) -> Server:
    """Bind first, so that a busy port is told before anything else starts."""
    bound = _bind(listen, flag)
    busy: set[object] = set()
    app.middlewares.append(_noting(busy))
    runner = web.AppRunner(
        app, access_log=None, logger=log.SILENT, handle_signals=False, shutdown_timeout=STOP_SECONDS
    )
    await runner.setup()
    await web.SockSite(runner, bound, ssl_context=tls).start()
    host, port = bound.getsockname()[:2]
    return Server(runner, host, port, busy)


def _noting(busy: set[object]) -> Middleware:
    @web.middleware
    async def noted(request: web.Request, handler: Handler) -> web.StreamResponse:
        busy.add(request.protocol)
        try:
            return await handler(request)
        finally:
            busy.discard(request.protocol)

    return noted


def _bind(listen: Listen, flag: str) -> socket.socket:
    try:
        return _socket(listen)
    except OSError as error:
        raise UserError(_sentence(listen, flag, error)) from error


def _socket(listen: Listen) -> socket.socket:
    at = (listen.host or ANY_V4, listen.port)
    if listen.host:
        family = socket.getaddrinfo(*at, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server(at, family=family, backlog=BACKLOG)
    return _both_families(listen.port) or socket.create_server(at, backlog=BACKLOG)


def _both_families(port: int) -> socket.socket | None:
    """One socket for IPv4 and IPv6; None where IPv6 is switched off, which only shows when it is bound."""
    if not socket.has_dualstack_ipv6():
        return None
    try:
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise


def _sentence(listen: Listen, flag: str, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"{listen} is in use by another process; stop it or choose another with {flag}."
        case errno.EACCES:
            return f"{listen} may not be used by this user; choose a port above 1023 with {flag}."
        case _:
            why = os.strerror(error.errno) if isinstance(error.errno, int) and error.errno > 0 else str(error)
            return f"Cannot listen on {listen} ({why.lower()}); choose another address with {flag}."
