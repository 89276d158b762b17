"""A fault proxy between a process of ours and its API server.

Plain HTTP on loopback towards us, the administrator's certificate towards the server. Every write is numbered
and shown to a plan, which may cut it before or after it took effect, answer it itself, hold it up, or kill
the process that sent it. Reads and watches pass, unless the plan cuts those too. No fault code is in the product.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web

from berth.devcluster import DevCluster
from berth.kube import auth

WRITES = ("POST", "PUT", "PATCH", "DELETE")
HOP = {"transfer-encoding", "connection", "keep-alive", "content-length", "host"}


@dataclass(frozen=True, slots=True)
class Write:
    number: int
    method: str
    path: str

    def __str__(self) -> str:
        return f"#{self.number} {self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Pass:
    """Let it through."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection without an answer; `after`: the server has acted."""

    after: bool = False


@dataclass(frozen=True, slots=True)
class Say:
    """Answer in the server's place; it never sees the request."""

    status: int
    reason: str
    headers: dict[str, str] = field(default_factory=dict)


Verdict = Pass | Cut | Say
Before = Callable[[Write], Awaitable[Verdict]]
After = Callable[[Write], Awaitable[Verdict]]


async def let_through(write: Write) -> Verdict:
    return Pass()


@dataclass(slots=True)
class Plan:
    """What happens to writes, and to the lines of watches. The default passes everything."""

    before: Before = let_through
    after: After = let_through
    watch_line: Callable[[bytes], bytes | None] = lambda line: line  # None: cut the stream here


class FaultProxy:
    def __init__(self, cluster: DevCluster, home: Path) -> None:
        self.plan = Plan()
        self.writes: list[Write] = []
        self.kubeconfig = home / f"proxied-{id(self):x}.yaml"
        self._server = cluster.api_url
        self._credentials = auth.load(cluster.kubeconfig)
        self._session: aiohttp.ClientSession
        self._streams: set[asyncio.Transport] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        access = await self._credentials.renew()
        assert isinstance(access.tls, ssl.SSLContext)
        connector = aiohttp.TCPConnector(ssl=access.tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=16 << 20)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self._write_kubeconfig(runner.addresses[0][1])
            try:
                yield self
            finally:
                self.cut_streams()
                await runner.cleanup()

    def cut_streams(self) -> None:
        """End every open watch without a word."""
        for transport in list(self._streams):
            transport.abort()

    def _write_kubeconfig(self, port: int) -> None:
        named = {"name": "proxied"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxied",
            "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{**named, "user": {}}],
            "contexts": [{**named, "context": {"cluster": "proxied", "user": "proxied"}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(content))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method not in WRITES:
            return await self._read(request)
        write = Write(len(self.writes), request.method, request.path)
        self.writes.append(write)
        verdict = await self.plan.before(write)
        if isinstance(verdict, Pass):
            answer = await self._forward(request)
            verdict = await self.plan.after(write)
            if isinstance(verdict, Pass):
                return answer
        return self._disturb(request, verdict)

    def _disturb(self, request: web.Request, verdict: Verdict) -> web.StreamResponse:
        if isinstance(verdict, Say):
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": verdict.status}
            body |= {"reason": verdict.reason, "message": "said by the fault proxy"}
            return web.json_response(body, status=verdict.status, headers=verdict.headers)
        assert request.transport is not None
        request.transport.abort()
        return web.Response(status=500)

    async def _forward(self, request: web.Request) -> web.Response:
        async with self._session.request(
            request.method,
            self._server + request.raw_path,
            data=await request.read(),
            headers=_headers(request),
        ) as answer:
            return web.Response(status=answer.status, body=await answer.read(), headers=_kept(answer.headers))

    async def _read(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            return await self._forward(request)
        assert request.transport is not None
        transport = request.transport
        self._streams.add(transport)
        try:
            return await self._watch(request)
        finally:
            self._streams.discard(transport)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(
            self._server + request.raw_path, headers=_headers(request), timeout=timeout, read_bufsize=1 << 22
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            await response.prepare(request)
            async for line in answer.content:
                passed = self.plan.watch_line(line)
                if passed is None:
                    assert request.transport is not None
                    request.transport.abort()
                    break
                await response.write(passed)
            return response


def _headers(request: web.Request) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name.lower() not in HOP}


def _kept(headers: object) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP}  # type: ignore[attr-defined]
