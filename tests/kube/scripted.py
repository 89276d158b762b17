"""A scripted API server on loopback, for the faults a real one cannot be made to show.

A script is a list of replies, given in turn, one per request; what was asked is kept. Replies are written
byte by byte as the test wants them: late, cut, silent, in pieces. It speaks plain HTTP, so `credentials()`
needs no certificate.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from berth.kube.auth import Credentials
from berth.kube.http.tls import ServerTrust
from berth.kube.identity import ClientIdentity, Fixed
from berth.kube.kubeconfig import Context
from berth.kube.resource import Resource

CONFIGMAPS = Resource("", "v1", "ConfigMap", "configmaps")

Reply = Callable[["Line"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Line:
    """The server's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def cut(self) -> None:
        self.writer.transport.abort()

    async def until_the_client_leaves(self) -> None:
        await self.reader.read()


@dataclass(slots=True)
class Server:
    script: list[Reply] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    def credentials(self, identity: ClientIdentity | None = None) -> Credentials:
        return Credentials(Context(f"http://127.0.0.1:{self.port}", ServerTrust(), identity or Fixed()))

    @property
    def tokens(self) -> list[str]:
        return [asked.headers.get("authorization", "") for asked in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line = Line(reader, writer)
        try:
            while asked := await _read(reader):
                self.asked.append(asked)
                await self.script.pop(0)(line)
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*script: Reply, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(list(script))
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


# Replies


def answer(status: int, body: Any = None, **headers: str) -> Reply:
    """A whole answer; keyword `retry_after` becomes the header Retry-After."""
    content = body if isinstance(body, bytes) else orjson.dumps(body or {})
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} Said", f"Content-Length: {len(content)}", *lines, "", ""])
    return bytes_of(head.encode() + content)


def refusal(code: int, reason: str = "", message: str = "no", **headers: str) -> Reply:
    status = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}
    return answer(code, status, **headers)


def bytes_of(*pieces: bytes) -> Reply:
    """These bytes, each piece in a packet of its own as far as the kernel lets us."""

    async def reply(line: Line) -> None:
        for piece in pieces:
            await line.say(piece)
            await asyncio.sleep(0)

    return reply


def cut(*pieces: bytes) -> Reply:
    """These bytes, and then the connection breaks."""

    async def reply(line: Line) -> None:
        for piece in pieces:
            await line.say(piece)
        line.writer.write_eof()

    return reply


def silence(*pieces: bytes) -> Reply:
    """These bytes, and then nothing more until the client leaves."""

    async def reply(line: Line) -> None:
        for piece in pieces:
            await line.say(piece)
        await line.until_the_client_leaves()

    return reply


def stream(*events: Any) -> bytes:
    """The bytes of a watch that says these events; end it with END_OF_STREAM, or do not."""
    lines = [orjson.dumps(event) + b"\n" for event in events]
    return STREAM_HEAD + b"".join(chunk(line) for line in lines)


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END_OF_STREAM = b"0\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


# Objects


def configmap(name: str, version: int, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def listing(version: int, *items: dict[str, Any], token: str = "") -> dict[str, Any]:
    bare = [
        {key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items
    ]
    meta = {"resourceVersion": str(version), "continue": token}
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": meta, "items": bare}


def change(type: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": type, "object": obj}


def bookmark(version: int) -> dict[str, Any]:
    return change("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version)}})


def error_event(code: int, reason: str) -> dict[str, Any]:
    return change("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "too old"})


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
