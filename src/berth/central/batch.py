"""Many calls in one: `POST /v2/batch` carries the bodies of the documented calls, and answers each with the
status and body it would have got alone. For operators under load; nobody has to use it.
"""

from __future__ import annotations

from typing import Any

from berth.central import bodies
from berth.central.answers import HttpRefusal
from berth.central.zones import Zones

CALLS = 256


def items(raw: bytes) -> list[Any]:
    found = bodies.typed(bodies.parsed(raw), "calls", list, [])
    if len(found) > CALLS:
        raise HttpRefusal(413, f"calls has more than {CALLS} items", "TooLarge")
    return found


def call(item: object, zones: Zones) -> bodies.Call:
    method = bodies.typed(item, "method", str, "") if isinstance(item, dict) else ""
    if not isinstance(item, dict) or method not in bodies.VERBS:
        raise HttpRefusal(400, bodies.UNPARSABLE, "Unparsable")
    return bodies.call_of(method, bodies.typed(item, "body", dict, {}), zones)
