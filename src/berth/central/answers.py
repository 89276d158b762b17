"""Answers in the contract's words: one table from reason to status and message per verb, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from berth.leasing.decide import Refusal
from berth.leasing.model import Reason
from berth.net.host import masked
from berth.store.admin import NOT_FOUND
from berth.store.requests import Granted, Released, family_of, zone_of

Table = Mapping[str, tuple[int, str]]
FROZEN = "two operators speak for this cluster, nothing of it is released until one of them is silent"

REGISTER: Mapping[str, tuple[int, str]] = {
    Reason.NO_MATCH: (404, f"Could not register address: {NOT_FOUND}"),
    Reason.SEVERAL_HOLDERS: (
        409,
        "Could not register address: multiple services registered. unable to change secret",
    ),
    Reason.OTHER_HOLDER: (
        409,
        "Could not register address: service mismatch. unable to change secret",
    ),
    Reason.PIN_OUTSIDE: (
        400,
        "Could not register address: the requested address is not valid for the provided zone",
    ),
    Reason.POOL_EXHAUSTED: (503, "Could not register address: no available prefix found for zone {pool}"),
    Reason.CLUSTER_FROZEN: (409, f"Could not register address: {FROZEN}"),
    Reason.QUOTA_EXCEEDED: (
        403,
        "Could not register address: the cluster has reached its quota in zone {zone}",
    ),
}
RELEASE: Mapping[str, tuple[int, str]] = {
    Reason.NO_MATCH: (404, f"Could not deregister service: {NOT_FOUND}"),
    Reason.NOT_HOLDER: (404, "Could not deregister service: service does not exist for this address"),
    Reason.CLUSTER_FROZEN: (409, f"Could not deregister service: {FROZEN}"),
}


class HttpRefusal(Exception):
    """A request that is answered with a no, ours or the ledger's."""

    def __init__(self, status: int, message: str, reason: str = "Invalid") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.body: Mapping[str, Any] = {"message": message, "reason": reason}
        self.headers: dict[str, str] = {}


def json(status: int, body: Mapping[str, Any]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


def refused(refusal: HttpRefusal) -> web.Response:
    response = json(refusal.status, refusal.body)
    response.headers.update(refusal.headers)
    return response


def told(answer: Granted | Released) -> dict[str, Any]:
    """The body of a yes."""
    if isinstance(answer, Released):
        message = "Service expiration set successfully"
    else:
        message = "Address registered successfully" if answer.fresh else "IP-address updated!"
    return {"message": message, "address": masked(answer.address)}


def translated(answer: Refusal, pool: str, table: Table) -> HttpRefusal:
    """What stands in no table was found wrong with the body (bodies.py), which said so."""
    if answer.reason not in table:
        return HttpRefusal(400, answer.detail, answer.reason)
    status, message = table[answer.reason]
    zone, family = zone_of(pool), family_of(pool)
    return HttpRefusal(status, message.format(zone=zone, pool=f"{zone}_v{family}"), answer.reason)
