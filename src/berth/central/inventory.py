"""The inventory call: an operator's report in, the differences out; `store/inventory.py` compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from berth.central import bodies
from berth.central.answers import HttpRefusal
from berth.central.zones import Zones
from berth.net.host import masked
from berth.secret import Secret
from berth.store.inventory import Comparison, Difference
from berth.store.operators import Beat
from berth.store.requests import RegisterRequest

ITEMS = 20_000
SECRETS = 2
SEQUENCES = range(1, 2**63)
HEARTBEATS = range(1, 301)  # seconds between two reports
ALIVE_MS = range(1, 100_001)  # between two heartbeats without a report


@dataclass(frozen=True, slots=True)
class Report:
    """A parsed inventory."""

    beat: Beat
    listed: tuple[RegisterRequest, ...]
    zones: frozenset[str]


def report(raw: bytes, zones: Zones) -> Report:
    body = bodies.parsed(raw)
    beat = _beat(body)
    items = bodies.typed(body, "addresses", list, [])
    if len(items) > ITEMS:
        raise HttpRefusal(413, f"addresses has more than {ITEMS} items", "TooLarge")
    listed = tuple(_item(at, item, beat.cluster_id, zones) for at, item in enumerate(items))
    _refuse_guesses(listed)
    named = frozenset(item["zone"] for item in items)
    return Report(beat, listed, named)


def _refuse_guesses(listed: tuple[RegisterRequest, ...]) -> None:
    """An address has one secret, and another one while that is being replaced."""
    tried: dict[str | None, set[Secret]] = {}
    for at, request in enumerate(listed):
        secrets = tried.setdefault(request.address, set())
        secrets.add(request.secret)
        if len(secrets) > SECRETS:
            raise HttpRefusal(400, f"addresses[{at}]: more than {SECRETS} secrets for one address")


def heartbeat(raw: bytes) -> Beat:
    """The body of a heartbeat without a report."""
    return _beat(bodies.parsed(raw), needs_alive=True)


def _beat(body: dict[str, Any], *, needs_alive: bool = False) -> Beat:
    cluster, epoch = (bodies.typed(body, key, str, "") for key in ("cluster_id", "epoch"))
    sequence, alive_ms = (bodies.typed(body, key, int, 0) for key in ("sequence", "alive_ms"))
    seconds = bodies.typed(body, "heartbeat_seconds", int, 60)
    leaving = bodies.typed(body, "leaving", bool, False)
    faults = [
        f"{key} is required"
        for key, value in (("cluster_id", cluster), ("epoch", epoch))
        if not bodies.is_name(value)
    ]
    if sequence not in SEQUENCES:
        faults.append("sequence must be a number from 1 on")
    if seconds not in HEARTBEATS:
        faults.append(f"heartbeat_seconds must be a number from 1 to {HEARTBEATS[-1]}")
    if alive_ms not in ALIVE_MS and (alive_ms or needs_alive):
        faults.append(f"alive_ms must be a number from {ALIVE_MS[0]} to {ALIVE_MS[-1]}")
    if faults:
        raise HttpRefusal(400, "\n".join(faults))
    return Beat(cluster, epoch, sequence, seconds * 1000, leaving, alive_ms)


def _item(at: int, item: object, cluster_id: str, zones: Zones) -> RegisterRequest:
    """The body of a POST, with its address; refused by its place in the list."""
    try:
        if not isinstance(item, dict):
            raise HttpRefusal(400, bodies.UNPARSABLE, "Unparsable")
        sent = bodies.fields_of(item)
        request = bodies.register(sent, zones)
    except HttpRefusal as refusal:
        raise HttpRefusal(refusal.status, f"addresses[{at}]: {refusal.message}", refusal.reason) from None
    if request.address is None or sent.cluster_id != cluster_id or sent.new_secret or sent.pending:
        raise HttpRefusal(
            400, f"addresses[{at}]: needs an address of this cluster_id, and no new_secret or pending"
        )
    return request


def answer(beat: Beat, listed: Sequence[RegisterRequest], compared: Comparison) -> dict[str, Any]:
    return {
        "message": "Inventory compared",
        "cluster_id": beat.cluster_id,
        "addresses": len(listed),
        "counted": compared.counted,
        "frozen": compared.frozen,
        "adopted": [_shown(one) for one in compared.adopted],
        "missing": [_shown(one) for one in compared.missing],
        "unknown": [_shown(one) for one in compared.unknown],
        "conflict": [_shown(one) for one in compared.conflict],
    }


def _shown(one: Difference) -> dict[str, str]:
    return {
        "address": masked(one.address),
        "service_name": one.who.service_name,
        "namespace_id": one.who.namespace_id,
        "reason": one.reason,
    }
