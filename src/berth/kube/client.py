"""The verbs: get, list, create, patch, replace, delete, watch. The only door to the API server.

Plain dicts in and out. Every write passes `_write`, whose guard is asked right before the bytes of each
attempt leave: a replica that may no longer lead must not write. What is repeated here is only what
`retry.py` allows, and a 401 once with renewed credentials. Everything else is the caller's to decide; after
`Unreachable` a caller reads before it writes again.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from enum import StrEnum
from typing import Any, Self
from urllib.parse import quote, urlencode

import orjson

from berth.errors import Conflict, Gone, Invalid, StatusError, Unreachable, UserError
from berth.kube.answers import Event, Listing, parse_event, parse_object, parse_page
from berth.kube.auth import Credentials
from berth.kube.http.transport import JSON, Request, Transport
from berth.kube.meta import Object
from berth.kube.resource import Resource
from berth.kube.retry import Retry
from berth.kube.sender import Observe, Sender, SendRules

__all__ = ["SILENCE_SECONDS", "Client", "Event", "Listing", "PatchKind"]

PAGE = 500
# API servers send a bookmark about once a minute, so a watch silent for longer has lost its other end.
SILENCE_SECONDS = 90.0


class PatchKind(StrEnum):
    """How a patch is written; the value is its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Client:
    """One API server; used as an async context manager, which owns its connections.

    `observe(verb, code, seconds)` hears of every attempt, code 0 being no answer.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        guard: Callable[[], None] | None = None,
        user_agent: str = "berth",
        in_flight: int = 64,
        timeout_seconds: float = 30.0,
        retry: Retry | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.credentials = credentials
        self._guard = guard or _allow
        transport = Transport(credentials, user_agent, timeout_seconds)
        self._sender = Sender(credentials, transport, SendRules(in_flight, retry or Retry(), observe))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sender.close()

    # Reads

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return parse_object(await self._read(resource.path(namespace, name), "get"))

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
    ) -> Listing:
        """Everything as of one moment, in pages. Objects carry their kind, which the server leaves out."""
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
            page = parse_page(await self._read(path + _query({**query, "continue": token}), "list"))
            items += page.items
            token = page.token
            if not token:
                return Listing(items, page.resource_version)

    async def revision(self, resource: Resource, namespace: str = "") -> str:
        """The store's present resource version, for the price of one object."""
        return parse_page(await self._read(resource.path(namespace) + "?limit=1", "list")).resource_version

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        timeout_seconds: float,
        label_selector: str = "",
        field_selector: str = "",
        silence_seconds: float = SILENCE_SECONDS,
    ) -> AsyncGenerator[Event]:
        """Changes after `resource_version`, and bookmarks, until the server ends the stream at its timeout.

        Raises Gone when the server no longer knows the version or sends any ERROR event, Unreachable when the
        stream is cut or silent. Use it with `aclosing`, so that the connection goes when the loop does.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": max(1, int(timeout_seconds)),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        request = Request("GET", resource.path(namespace) + _query(query), "watch")
        async with aclosing(self._sender.lines(request, silence_seconds)) as lines:
            async for line in lines:
                yield parse_event(line)

    # Writes

    async def create(
        self, resource: Resource, obj: Mapping[str, Any], namespace: str = "", *, dry_run: bool = False
    ) -> Object:
        namespace = namespace or obj.get("metadata", {}).get("namespace", "")
        path = resource.path(namespace) + _query({"dryRun": _dry(dry_run)})
        return await self._write(Request("POST", path, "create", orjson.dumps(obj)))

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
        """A JSON patch whose `test` fails is a Conflict: the object is not what the patch was made for."""
        query = {"fieldManager": field_manager, "dryRun": _dry(dry_run), "force": "true" if force else ""}
        path = resource.path(namespace, name, subresource) + _query(query)
        try:
            return await self._write(Request("PATCH", path, "patch", orjson.dumps(body), kind))
        except Invalid as error:
            # What fails validation names its fields; a patch that did not fit names none.
            if kind is PatchKind.JSON and not error.details.get("causes"):
                raise Conflict(409, f"{path} changed meanwhile", status_reason="Conflict") from error
            raise

    async def replace(
        self, resource: Resource, obj: Mapping[str, Any], *, subresource: str = "", dry_run: bool = False
    ) -> Object:
        meta = obj["metadata"]
        path = resource.path(meta.get("namespace", ""), meta["name"], subresource)
        query = _query({"dryRun": _dry(dry_run)})
        return await self._write(Request("PUT", path + query, "update", orjson.dumps(obj)))

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
        body = orjson.dumps(options) if options else None
        answer = await self._write(Request("DELETE", resource.path(namespace, name), "delete", body))
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
        more = dict(headers or {})
        kind = more.pop("Content-Type", JSON)
        content = None if body is None else orjson.dumps(body)
        request = Request(method, path + _query(params or {}), method.lower(), content, kind, more)
        answer = await self._sender.send(request, _allow if request.is_read else self._guard)
        try:
            return orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            return answer.body.decode(errors="replace")

    async def check(self) -> Object:
        """The server's version, or one sentence for the person at the terminal why there is none."""
        server = self.credentials.server
        try:
            return parse_object(await self._read("/version", "get"))
        except Unreachable as error:
            why = str(error).rpartition(f"{server}: ")[2]
            raise UserError(f"No API server can be reached at {server}: {why}.") from error
        except StatusError as error:
            raise UserError(f"The API server at {server} refused us: {error.message.rstrip('.')}.") from error

    # One request

    async def _read(self, path: str, verb: str) -> bytes:
        return (await self._sender.send(Request("GET", path, verb), _allow)).body

    async def _write(self, request: Request) -> Object:
        """The one way to change anything."""
        return parse_object((await self._sender.send(request, self._guard)).body)


def _allow() -> None:
    """The guard of those who need none."""


def _dry(dry_run: bool) -> str:
    return "All" if dry_run else ""


def _query(params: Mapping[str, Any]) -> str:
    present = {key: value for key, value in params.items() if value != ""}
    return "?" + urlencode(present, quote_via=quote) if present else ""


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
