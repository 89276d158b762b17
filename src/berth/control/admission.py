"""The admission server: HTTPS, AdmissionReview v1 in and out, one handler per path.

The API server waits for us, so every review has a deadline: the server's own (it tells it in `?timeout=`)
less a little, and never more than ours. A handler that is late or fails is an HTTP error; then the
failurePolicy of the webhook decides, and an object that is not ours is not held up by our trouble. One that
stumbles over what is in the object refuses it. Bodies are never logged: they may carry secrets.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from berth import log
from berth.control.listen import Listen, Server, serve
from berth.control.review import Answer, BadReview, Review, denied, misshapen, parse_review, render
from berth.metrics import Metrics

Handler = Callable[[Review], Awaitable[Answer]]

# Time for our answer to travel before the API server gives up on it.
EARLY_SECONDS = 0.5
# Go writes the webhook's timeoutSeconds (1 to 30) as a duration.
ASKED = re.compile(r"(\d+)s")
# What a handler raises that finds another shape than its kind has, a text for a list and the like.
STUMBLED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
# Longer ones are read beside the event loop.
LONG_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """An object is at most 1.5 MiB in etcd, JSON's escapes included; a review may hold two, and who asks."""

    deadline_seconds: float = 5.0
    body_bytes: int = 4 * 1024 * 1024


class _Reply(NamedTuple):
    """What goes out, and the word for it in metrics."""

    status: int
    body: bytes
    result: str


class Admission:
    """The route table and what happens to each review."""

    def __init__(self, routes: Mapping[str, Handler], metrics: Metrics, limits: Limits | None = None) -> None:
        self._routes = dict(routes)
        self._metrics = metrics
        self._limits = limits or Limits()
        self._log = log.get("berth.admission")

    async def serve(self, listen: Listen, tls: ssl.SSLContext, flag: str = "--webhook-port") -> Server:
        return await serve(self.app(), listen, flag, tls=tls)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=self._limits.body_bytes)
        for path in self._routes:
            app.router.add_post(path, self._post)
        return app

    async def _post(self, request: web.Request) -> web.Response:
        started = time.perf_counter()
        reply = await self._reply(request)
        seconds = time.perf_counter() - started
        self._metrics.reviewed(request.path, reply.result, seconds)
        kind = "application/json" if reply.status == 200 else "text/plain"
        return web.Response(status=reply.status, body=reply.body, content_type=kind)

    async def _reply(self, request: web.Request) -> _Reply:
        deadline = _deadline_seconds(request.query.get("timeout", ""), self._limits.deadline_seconds)
        try:
            async with asyncio.timeout(deadline):
                return await self._answered(request)
        except TimeoutError:
            self._log.warning("review not answered in time", webhook=request.path, seconds=deadline)
            return _Reply(504, b"no answer within the deadline", "timeout")
        except BadReview as error:
            self._log.warning("bad review", webhook=request.path, cause=str(error))
            return _Reply(400, str(error).encode(), "bad")
        except web.HTTPRequestEntityTooLarge:
            self._log.warning("review too large", webhook=request.path, limit=self._limits.body_bytes)
            return _Reply(413, b"the review is larger than this webhook accepts", "bad")

    async def _answered(self, request: web.Request) -> _Reply:
        body = await request.read()
        review = await asyncio.to_thread(parse_review, body) if len(body) > LONG_BYTES else parse_review(body)
        with log.bound(webhook=request.path, uid=review.uid):
            if why := misshapen(review):
                self._log.info("review refused unread", cause=why)
                return _Reply(200, render(review, _unreadable(why)), "denied")
            try:
                answer = await self._routes[request.path](review)
            except TimeoutError:
                raise
            except STUMBLED as error:
                self._failed(error)
                return _Reply(200, render(review, _unreadable("a field is not of its kind's shape")), "error")
            except Exception as error:
                self._failed(error)
                return _Reply(500, b"the webhook failed; its log says why", "error")
            self._note(review, answer)
            return _Reply(200, render(review, answer), answer.result)

    def _failed(self, error: Exception) -> None:
        """Type and place only: the text of an unexpected error may quote the object."""
        self._log.error("review failed", error=type(error).__name__, at=_place(error))

    def _note(self, review: Review, answer: Answer) -> None:
        say = self._log.debug if answer.allowed else self._log.info
        say(
            "review answered",
            result=answer.result,
            reason=answer.reason,
            operation=review.operation,
            object=f"{review.kind} {review.namespace}/{review.name}",
            dry_run=review.dry_run,
        )


def _unreadable(why: str) -> Answer:
    return denied(f"the object cannot be read: {why}", code=400, reason="BadRequest")


def _deadline_seconds(asked: str, ours: float) -> float:
    """Half a second before the API server stops waiting, or half of its time if that is very short."""
    match = ASKED.fullmatch(asked)
    if match is None:
        return ours
    theirs = float(match.group(1))
    return min(ours, max(theirs - EARLY_SECONDS, theirs / 2))


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
