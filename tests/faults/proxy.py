"""A fault proxy between a process of ours and its API server.

Plain HTTP on loopback towards us, the administrator's certificate towards the server. Every write is numbered
and shown to a plan, which may cut it before or after it took effect, answer it itself, hold it up, or kill
the process that sent it. Watches are disturbed by streams.py. No fault code is in the product.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web
from tests.faults.streams import Streams, is_list

from berth.devcluster import DevCluster
from berth.kube import auth

WRITES = ("POST", "PUT", "PATCH", "DELETE")
HOP = {"transfer-encoding", "connection", "keep-alive", "content-length", "host"}
CHATTER = ("/events", "/leases")  # written for people and for the election, whatever the leases do


@dataclass(frozen=True, slots=True)
class Write:
    number: int
    method: str
    path: str
    at: float = 0.0

    def __str__(self) -> str:
        return f"#{self.number} {self.method} {self.path}"

    @property
    def counts(self) -> bool:
        return not any(part in self.path for part in CHATTER)


@dataclass(frozen=True, slots=True)
class Pass:
    """Let it through."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection without an answer."""


@dataclass(frozen=True, slots=True)
class Say:
    """Answer in the server's place."""

    status: int
    reason: str
    headers: Mapping[str, str] = field(default_factory=dict)


Verdict = Pass | Cut | Say
Ask = Callable[[Write], Awaitable[Verdict]]


async def let_through(write: Write) -> Verdict:
    return Pass()


@dataclass(slots=True)
class Plan:
    """What happens to a write before the server sees it, and after it has acted. The default passes all."""

    before: Ask = let_through
    after: Ask = let_through


class FaultProxy:
    def __init__(self, cluster: DevCluster, home: Path) -> None:
        self.plan = Plan()
        self.writes: list[Write] = []
        self.answers: dict[int, int] = {}  # status by number of the write, where the server was asked
        self.kubeconfig = home / f"proxied-{id(self):x}.yaml"
        self.streams = Streams()
        self.slow_reads: dict[str, float] = {}  # beginning of a path → how long an answer takes
        self._is_away = False
        self._server = cluster.api_url
        self._credentials = auth.load(cluster.kubeconfig)
        self._session: aiohttp.ClientSession

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        access = await self._credentials.renew()
        assert isinstance(access.tls, ssl.SSLContext)
        connector = aiohttp.TCPConnector(ssl=access.tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            app = web.Application(client_max_size=16 << 20)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._write_kubeconfig(runner.addresses[0][1])
            try:
                yield self
            finally:
                self.streams.cut()
                await runner.cleanup()

    async def revision(self) -> int:
        """Of the store, now."""
        async with self._session.get(f"{self._server}/api/v1/namespaces?limit=1") as answer:
            return int((await answer.json())["metadata"]["resourceVersion"])

    @contextmanager
    def away(self) -> Iterator[None]:
        """Nothing gets through meanwhile."""
        self._is_away = True
        self.streams.cut()
        try:
            yield
        finally:
            self._is_away = False

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
        if self._is_away:
            return cut(request)
        try:
            if request.method in WRITES:
                return await self._write(request)
            if request.query.get("watch") == "true":
                return await self._watch(request)
            await asyncio.sleep(self._slowness(request.path))
            return await self._forward(request)
        except aiohttp.ClientError:  # the server is away: so are we
            return cut(request)

    def _slowness(self, path: str) -> float:
        return max((late for start, late in self.slow_reads.items() if path.startswith(start)), default=0.0)

    async def _write(self, request: web.Request) -> web.StreamResponse:
        write = Write(len(self.writes), request.method, request.path, time.monotonic())
        self.writes.append(write)
        verdict = await self.plan.before(write)
        if isinstance(verdict, Pass):
            answer = await self._forward(request)
            self.answers[write.number] = answer.status
            verdict = await self.plan.after(write)
            if isinstance(verdict, Pass):
                return answer
        return say(verdict) if isinstance(verdict, Say) else cut(request)

    async def _forward(self, request: web.Request) -> web.Response:
        async with self._session.request(
            request.method,
            self._server + request.raw_path,
            data=await request.read() or None,
            headers=_kept(request.headers),
            skip_auto_headers=("Content-Type", "User-Agent"),
        ) as answer:
            return web.Response(status=answer.status, body=await answer.read(), headers=_kept(answer.headers))

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        if (instead := self.streams.instead(request)) is not None:
            return instead
        if is_list(request):
            await asyncio.sleep(self._slowness(request.path))
        async with self._session.get(
            self._server + request.raw_path,
            headers=_kept(request.headers) | {"Accept": "application/json"},  # what we say on it is JSON
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=1 << 22,
        ) as answer:
            response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            await response.prepare(request)
            await self.streams.carry(request, response, answer.content)
            return response


def say(verdict: Say) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": verdict.status}
    body |= {"reason": verdict.reason, "message": "said by the fault proxy"}
    return web.json_response(body, status=verdict.status, headers=verdict.headers)


def cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in HOP}
