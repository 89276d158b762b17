"""The verbs: get, list, create, patch, replace, delete, watch. The only door to the API server.

Plain dicts in and out. Every write passes `_write`, which asks the guard first (RELIABILITY: a replica that
may no longer lead must not write). What is repeated here is only what the server certainly did not do: 401
once with renewed credentials, 429 always, and reads also on 503 with Retry-After. Everything else is the
caller's to decide, and after `Unreachable` a caller reads before it writes again.
"""

from __future__ import annotations

import asyncio
import builtins
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from enum import StrEnum
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

import orjson

from berth.errors import Gone, ServerError, StatusError, TooManyRequests, Unauthorized, Unreachable, UserError
from berth.kube.auth import Access, Credentials
from berth.kube.lines import Lines
from berth.kube.meta import Object
from berth.kube.resource import Resource
from berth.kube.status import failure, from_status
from berth.kube.transport import JSON, Answer, Request, Transport

PAGE = 500
TRIES = 5
LONGEST_WAIT_SECONDS = 10.0
# API servers send a bookmark about once a minute, so a watch silent for longer has lost its other end.
SILENCE_SECONDS = 150.0


class PatchKind(StrEnum):
    """How a patch is written; the value is its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Listing(NamedTuple):
    items: list[Object]
    resource_version: str


class Event(NamedTuple):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK (an object with only a resource version)."""

    type: str
    object: Object


class Client:
    """One API server; used as an async context manager, which owns its connections."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        guard: Callable[[], None] | None = None,
        user_agent: str = "berth",
        in_flight: int = 64,
        timeout_seconds: float = 30.0,
    ) -> None:
        self.credentials = credentials
        self._guard = guard or _allow
        self._slots = asyncio.Semaphore(in_flight)
        self._transport = Transport(credentials, user_agent, timeout_seconds)

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.close()

    # Reads

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return await self._read(resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
    ) -> Listing:
        """Everything, as of one moment, fetched in pages. Objects carry their kind, which the server
        leaves out.
        """
        path = resource.path(namespace)
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        try:
            listing = await self._pages(path, {**query, "limit": limit})
        except Gone:
            # The continue token outlived its revision while we paged; one answer cannot go stale on the way.
            listing = await self._pages(path, query)
        for item in listing.items:
            item["apiVersion"] = resource.api_version
            item["kind"] = resource.kind
        return listing

    async def _pages(self, path: str, query: Mapping[str, Any]) -> Listing:
        items: list[Object] = []
        token = ""
        while True:
            page = await self._read(path + _query({**query, "continue": token}))
            items += page.get("items") or ()
            token = page["metadata"].get("continue", "")
            if not token:
                return Listing(items, page["metadata"]["resourceVersion"])

    async def revision(self, resource: Resource, namespace: str = "") -> str:
        """The store's present resource version, for the price of one object."""
        page = await self._read(resource.path(namespace) + "?limit=1")
        return str(page["metadata"]["resourceVersion"])

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        timeout_seconds: float,
        label_selector: str = "",
        silence_seconds: float = SILENCE_SECONDS,
    ) -> AsyncGenerator[Event]:
        """Changes after `resource_version`, bookmarks among them, until the server ends the stream at its
        timeout.

        Raises Gone when the server no longer knows the version or sends any ERROR event, Unreachable when the
        stream is cut or silent. Use it with `aclosing`, so that the connection goes when the loop does.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": max(1, int(timeout_seconds)),
            "labelSelector": label_selector,
        }
        request = Request("GET", resource.path(namespace) + _query(query))
        async with aclosing(self._lines(request, silence_seconds)) as lines:
            async for line in lines:
                yield _event(line)

    async def _lines(self, request: Request, silence_seconds: float) -> AsyncGenerator[bytes]:
        access = await self._access()
        async with self._transport.stream(request, access, silence_seconds) as response:
            if response.status != 200:
                error = failure(
                    response.status, await response.read(), response.headers.get("Retry-After", "")
                )
                await self._refused(error, access)
                raise error
            lines = Lines()
            while chunk := await response.content.readany():
                for line in lines.feed(chunk):
                    yield line
            if lines.is_cut:
                raise Unreachable("the watch was cut in the middle of a line")

    # Writes

    async def create(
        self, resource: Resource, obj: Mapping[str, Any], namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        namespace = namespace or obj.get("metadata", {}).get("namespace", "")
        path = resource.path(namespace) + _query({"dryRun": "All" if dry_run else ""})
        return await self._write("POST", path, obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any] | builtins.list[Any],
        namespace: str = "",
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
        force: bool = False,
    ) -> Object:
        query = {
            "fieldManager": field_manager,
            "dryRun": "All" if dry_run else "",
            "force": "true" if force else "",
        }
        path = resource.path(namespace, name, subresource) + _query(query)
        return await self._write("PATCH", path, body, kind)

    async def replace(
        self, resource: Resource, obj: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False
    ) -> Object:
        meta = obj["metadata"]
        path = resource.path(meta.get("namespace", ""), meta["name"], subresource)
        return await self._write("PUT", path + _query({"dryRun": "All" if dry_run else ""}), obj)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> Object | None:
        """Asks for deletion; the object if it lives on for its finalizers, None if it is gone."""
        options = _delete_options(uid, resource_version, grace_seconds, propagation)
        answer = await self._write("DELETE", resource.path(namespace, name), options)
        return None if answer.get("kind") == "Status" else answer

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Any other path; parsed if it is JSON, else text."""
        content = None if body is None else orjson.dumps(body)
        kind = (headers or {}).get("Content-Type", JSON)
        request = Request(method, path + _query(params or {}), content, kind, dict(headers or {}))
        answer = await self._send(request, _allow if method in ("GET", "HEAD") else self._guard)
        try:
            return orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            return answer.body.decode(errors="replace")

    async def check(self) -> Object:
        """The server's version, or one sentence for the person at the terminal why there is none."""
        try:
            return await self._read("/version")
        except Unreachable as error:
            why = str(error).partition(": ")[2]
            raise UserError(f"No API server at {self.credentials.server}: {why}.") from error
        except StatusError as error:
            raise UserError(
                f"The API server at {self.credentials.server} refused us with {error.code}: {error.message}."
            ) from error

    # One request

    async def _read(self, path: str) -> Object:
        return _object(await self._send(Request("GET", path), _allow))

    async def _write(self, method: str, path: str, body: Any, kind: str = JSON) -> Object:
        """The one way to change anything."""
        request = Request(method, path, None if body is None else orjson.dumps(body), kind)
        return _object(await self._send(request, self._guard))

    async def _send(self, request: Request, guard: Callable[[], None]) -> Answer:
        """The answer if it is a success; the error it means otherwise, after what may safely be repeated."""
        for attempt in range(1, TRIES + 1):
            async with self._slots:
                access = await self._access()
                guard()
                answer = await self._transport.send(request, access)
            if answer.status < 300:
                return answer
            error = failure(answer.status, answer.body, answer.retry_after)
            if isinstance(error, Unauthorized) and attempt == 1 and await self._refused(error, access):
                continue
            wait = _wait(request, error, attempt)
            if wait is None or attempt == TRIES:
                raise error
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def _access(self) -> Access:
        return self.credentials.access() or await self.credentials.renew()

    async def _refused(self, error: StatusError, access: Access) -> bool:
        """After a 401: True if there are other credentials to try."""
        if not isinstance(error, Unauthorized):
            return False
        try:
            renewed = await self.credentials.renew(refused=access)
        except UserError as cause:
            raise error from cause
        return renewed.authorization != access.authorization or renewed.tls is not access.tls


def _allow() -> None:
    """The guard of those who need none."""


def _object(answer: Answer) -> Object:
    obj: Object = orjson.loads(answer.body)
    return obj


def _query(params: Mapping[str, Any]) -> str:
    present = {key: value for key, value in params.items() if value != ""}
    return "?" + urlencode(present, quote_via=quote) if present else ""


def _event(line: bytes) -> Event:
    parsed = orjson.loads(line)
    event = Event(parsed["type"], parsed["object"])
    if event.type == "ERROR":
        # Whatever the server says went wrong with a watch, its answer is the same: list again.
        error = from_status(event.object, 410)
        raise Gone(error.code, error.message, status_reason=error.status_reason, details=error.details)
    return event


def _delete_options(
    uid: str, resource_version: str, grace_seconds: int | None, propagation: str
) -> Object | None:
    conditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    options = {
        "preconditions": conditions or None,
        "gracePeriodSeconds": grace_seconds,
        "propagationPolicy": propagation or None,
    }
    present = {key: value for key, value in options.items() if value is not None}
    return {"kind": "DeleteOptions", "apiVersion": "v1", **present} if present else None


def _wait(request: Request, error: StatusError, attempt: int) -> float | None:
    """How long until this may be sent again, None if it may not be."""
    asked = error.retry_after_seconds
    overloaded = isinstance(error, TooManyRequests)
    restarting = isinstance(error, ServerError) and error.code == 503 and asked is not None
    if not (overloaded or (restarting and request.method == "GET")):
        return None
    seconds = asked if asked is not None else 0.1 * 2**attempt
    # A server that wants to be left alone for long gets its wish from the caller's queue, not from a held
    # worker.
    return None if seconds > LONGEST_WAIT_SECONDS else seconds * random.uniform(1.0, 1.5)
