"""The bodies of answers → objects, pages of lists, events of a watch; parsed with suspicion.

Between the API server and us may stand things that answer 200 with a login page or nothing at all. What is
not what was asked for is `Unreachable`: no answer of the API server's came.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from berth.errors import Gone, Unreachable
from berth.kube.meta import Object, resource_version
from berth.kube.status import from_status


class Listing(NamedTuple):
    items: list[Object]
    resource_version: str


class ListPage(NamedTuple):
    items: list[Object]
    resource_version: str
    token: str  # for the next page; empty on the last


class Event(NamedTuple):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK (an object with only a resource version)."""

    type: str
    object: Object


def parse_object(text: bytes) -> Object:
    obj = _parse(text)
    if not isinstance(obj, dict):
        raise Unreachable("the answer is not an object; something stands before the API server")
    return obj


def parse_page(text: bytes) -> ListPage:
    """An answer without a list is no empty list: "nothing there" must have been said."""
    body = parse_object(text)
    try:
        meta = body["metadata"]
        return ListPage(body["items"] or [], meta["resourceVersion"], meta.get("continue", ""))
    except (KeyError, TypeError) as error:
        raise Unreachable("the answer is not a list; something stands before the API server") from error


def parse_event(line: bytes) -> Event:
    parsed = _parse(line)
    if not isinstance(parsed, dict) or not isinstance(parsed.get("object"), dict):
        raise Unreachable("a line of the watch is not an event")
    event = Event(str(parsed.get("type")), parsed["object"])
    if event.type == "ERROR" or not resource_version(event.object):
        # Whatever went wrong with a watch, and an event that cannot be placed, have one answer: list again.
        fault = from_status(event.object, 410)
        raise Gone(fault.code, fault.message, status_reason=fault.status_reason, details=fault.details)
    return event


def _parse(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unreachable("the answer is not JSON; something stands before the API server") from error
