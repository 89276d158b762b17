"""One request from start to answer: its turn, its credentials, its guard, and what may be repeated.

Between `client.py` (verbs) and `transport.py` (bytes). The number of requests in flight is limited here,
before a request's time starts to count, and a request that waits for the server's Retry-After gives its
turn away. Watches have no turn: they last, and there are as many as kinds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from berth.errors import StatusError, Unauthorized, Unreachable, UserError
from berth.kube.auth import Credentials, RequestAuth
from berth.kube.http.lines import Lines
from berth.kube.http.pool import Guard
from berth.kube.http.transport import Request, Response, Stream, Transport
from berth.kube.retry import Retry
from berth.kube.status import failure

Observe = Callable[[str, int, float], None]


@dataclass(frozen=True, slots=True)
class SendRules:
    """How requests are sent; `observe` hears (verb, code, seconds) of every attempt, code 0 being no
    answer.
    """

    in_flight: int
    retry: Retry
    observe: Observe | None = None


class Sender:
    def __init__(self, credentials: Credentials, transport: Transport, rules: SendRules) -> None:
        self._credentials = credentials
        self._transport = transport
        self._slots = asyncio.Semaphore(rules.in_flight)
        self._retry = rules.retry
        self._observe = rules.observe

    async def close(self) -> None:
        await self._transport.close()

    async def send(self, request: Request, guard: Guard) -> Response:
        """The answer if it is a success; otherwise its error, after what may safely be repeated."""
        attempt = 0
        renewed = False
        while True:
            attempt += 1
            async with self._slots:
                access = await self._access()
                answer = await self._exchange(request, access, guard)
            if answer.status < 300:
                return answer
            error = failure(answer.status, answer.body, answer.headers.get("retry-after", ""))
            if not renewed and await self._has_other_access(error, access):
                renewed = True
                continue
            wait = self._retry.wait_seconds(request, error, attempt)
            if wait is None:
                raise error
            await self._retry.sleep(wait)

    async def _exchange(self, request: Request, access: RequestAuth, guard: Guard) -> Response:
        if self._observe is None:
            return await self._transport.send(request, access, guard)
        started_at = time.perf_counter()
        code = 0
        try:
            answer = await self._transport.send(request, access, guard)
            code = answer.status
        finally:
            self._observe(request.verb, code, time.perf_counter() - started_at)
        return answer

    async def _access(self) -> RequestAuth:
        return self._credentials.access() or await self._credentials.renew()

    async def _has_other_access(self, error: StatusError, refused: RequestAuth) -> bool:
        """After a 401: are there newer credentials to try?"""
        if not isinstance(error, Unauthorized):
            return False
        try:
            renewed = await self._credentials.renew(refused=refused)
        except UserError as cause:
            raise error from cause
        return renewed.authorization != refused.authorization or renewed.tls is not refused.tls

    async def lines(self, request: Request, silence_seconds: float) -> AsyncGenerator[bytes]:
        """The lines of an answer that lasts, as they come."""
        access = await self._access()
        async with self._transport.stream(request, access, silence_seconds) as stream:
            if stream.status != 200:
                raise await self._no_stream(stream, access)
            async with aclosing(_split(stream)) as lines:
                async for line in lines:
                    yield line

    async def _no_stream(self, stream: Stream, access: RequestAuth) -> StatusError:
        body = b"".join([chunk async for chunk in stream.chunks])
        error = failure(stream.status, body, stream.headers.get("retry-after", ""))
        await self._has_other_access(error, access)
        return error


async def _split(stream: Stream) -> AsyncGenerator[bytes]:
    lines = Lines()
    async with aclosing(stream.chunks) as chunks:
        async for chunk in chunks:
            for line in lines.feed(chunk):
                yield line
    if lines.is_cut:
        raise Unreachable("the watch was cut in the middle of a line")
