"""Many calls in one: `POST /v2/batch` carries the bodies of the documented calls, and answers each with the
status and body it would have got alone. For operators under load; nobody has to use it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from berth.central import answers, bodies
from berth.central.answers import HttpRefusal
from berth.central.zones import Zones
from berth.store.requests import LedgerRequest

CALLS = 256
VERBS: dict[str, tuple[Callable[[bodies.Fields, Zones], LedgerRequest], answers.Table]] = {
    "POST": (bodies.register, answers.REGISTER),
    "DELETE": (bodies.release, answers.RELEASE),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One of them, or one that came alone, parsed."""

    fields: bodies.Fields
    request: LedgerRequest
    table: answers.Table


def items(raw: bytes) -> list[Any]:
    found = bodies.typed(bodies.parsed(raw), "calls", list, [])
    if len(found) > CALLS:
        raise HttpRefusal(413, f"calls has more than {CALLS} items", "TooLarge")
    return found


def call(item: object, zones: Zones) -> Call:
    method = bodies.typed(item, "method", str, "") if isinstance(item, dict) else ""
    if not isinstance(item, dict) or method not in VERBS:
        raise HttpRefusal(400, bodies.UNPARSABLE, "Unparsable")
    return call_of(method, bodies.typed(item, "body", dict, {}), zones)


def call_of(method: str, body: dict[str, Any], zones: Zones) -> Call:
    parse, table = VERBS[method]
    sent = bodies.fields_of(body)
    return Call(sent, parse(sent, zones), table)
