"""JSON bodies ↔ our values. The checks stand in the contract's order (3.3), each with its message; the
framework's own validation stays out of the way, and no message repeats what a client sent as a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from berth.central import answers
from berth.central.answers import HttpRefusal
from berth.central.zones import Zones
from berth.leasing.decide import Refusal
from berth.leasing.holders import NAME_LIMIT, Entry, Identity
from berth.leasing.holders import is_name as is_name
from berth.leasing.model import Reason
from berth.net import Family
from berth.net.host import canonical
from berth.secret import Secret
from berth.store.requests import LedgerRequest, RegisterRequest, ReleaseRequest, pool_key

UNPARSABLE = "Could not parse incomming request"
FAMILIES = {"ipv4": Family.V4, "ipv6": Family.V6}
NAMES = ("service_name", "namespace_id", "cluster_id")
SECRET_LENGTH = range(8, 65)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fields:
    """A body whose types are right; nothing else is known about it yet."""

    secret: str
    new_secret: str
    zone: str
    ip_family: str
    address: str
    service_name: str
    namespace_id: str
    cluster_id: str
    uid: str
    retention_days: int
    deny: bool
    pending: bool

    def __repr__(self) -> str:
        return "Fields(***)"


@dataclass(frozen=True, slots=True)
class Call:
    """A documented call, parsed: what the ledger is asked, and how its no is told."""

    fields: Fields
    request: LedgerRequest
    table: answers.Table


def parsed(raw: bytes) -> dict[str, Any]:
    """One JSON object, or a refusal that does not say more than that."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise HttpRefusal(400, UNPARSABLE, "Unparsable") from None
    if not isinstance(body, dict):
        raise HttpRefusal(400, UNPARSABLE, "Unparsable")
    return body


def fields_of(body: dict[str, Any]) -> Fields:
    service = typed(body, "service", dict, {})
    return Fields(
        secret=typed(body, "secret", str, ""),
        new_secret=typed(body, "new_secret", str, ""),
        zone=typed(body, "zone", str, ""),
        ip_family=typed(body, "ip_family", str, ""),
        address=typed(body, "address", str, ""),
        service_name=typed(service, "service_name", str, ""),
        namespace_id=typed(service, "namespace_id", str, ""),
        cluster_id=typed(service, "cluster_id", str, ""),
        uid=typed(service, "uid", str, ""),
        retention_days=typed(service, "retention_period_days", int, 0),
        deny=typed(service, "deny_external_cleanup", bool, False),
        pending=typed(body, "pending", bool, False),
    )


def typed(body: dict[str, Any], key: str, kind: type[T], default: T) -> T:
    """Absent and null are the default; a bool is no integer."""
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise HttpRefusal(400, UNPARSABLE, "Unparsable")
    return value


def call_of(method: str, body: dict[str, Any], zones: Zones) -> Call:
    """POST of an address or DELETE of a service, alone or in a batch."""
    parse, table = VERBS[method]
    sent = fields_of(body)
    return Call(sent, parse(sent, zones), table)


def register(sent: Fields, zones: Zones) -> RegisterRequest:
    zone, family, otherwise, address = _checked(sent, zones)
    secret = Secret(sent.secret)
    new_secret = Secret(sent.new_secret) if sent.new_secret else None
    return RegisterRequest(
        pool_key(zone, family),
        _entry(sent),
        secret,
        address,
        None if new_secret == secret else new_secret,
        sent.pending,
        otherwise,
    )


def release(sent: Fields, zones: Zones) -> ReleaseRequest:
    zone, family, otherwise, address = _checked(sent, zones)
    return ReleaseRequest(pool_key(zone, family), _entry(sent), Secret(sent.secret), address, otherwise)


VERBS: Mapping[str, tuple[Callable[[Fields, Zones], LedgerRequest], answers.Table]] = {
    "POST": (register, answers.REGISTER),
    "DELETE": (release, answers.RELEASE),
}


def cluster_id(raw: bytes) -> str:
    """The body of a cluster release."""
    value = typed(parsed(raw), "cluster_id", str, "")
    if not is_name(value):
        raise HttpRefusal(400, "cluster_id is required")
    return value


def _entry(sent: Fields) -> Entry:
    who = Identity(sent.service_name, sent.namespace_id, sent.cluster_id)
    return Entry(who, sent.retention_days, sent.deny, sent.uid)


def _checked(sent: Fields, zones: Zones) -> tuple[str, Family, Refusal | None, str | None]:
    """Checks 3 to 8. What only concerns giving out something new comes back as the `otherwise` answer."""
    faults = _faults(sent)
    if faults:
        raise HttpRefusal(400, "\n".join(faults))
    if sent.retention_days > 30:
        raise HttpRefusal(400, "retention period cannot be more than 30 days")
    if sent.retention_days < 0:
        raise HttpRefusal(400, "retention_period_days: retention period cannot be less than 0 days")
    family = FAMILIES[sent.ip_family]
    otherwise = _otherwise(sent.zone, family, zones)
    try:
        return sent.zone, family, otherwise, _address(sent.address, family)
    except HttpRefusal:
        if otherwise is not None and otherwise.reason is Reason.UNKNOWN_ZONE:
            raise HttpRefusal(400, otherwise.detail, otherwise.reason) from None
        raise


def _faults(sent: Fields) -> list[str]:
    faults = []
    if len(sent.secret) not in SECRET_LENGTH:
        faults.append("secret must have 8 to 64 characters" if sent.secret else "secret is required")
    if sent.new_secret and len(sent.new_secret) not in SECRET_LENGTH:
        faults.append("new_secret must have 8 to 64 characters")
    if not sent.zone:
        faults.append("zone is required")
    if sent.ip_family not in FAMILIES:
        text = "invalid ip family, must be either 'ipv4' or 'ipv6'"
        faults.append(text if sent.ip_family else f"ip_family is required: {text}")
    rule = f"is required, at most {NAME_LIMIT} characters without control characters"
    faults += [f"{name} {rule}" for name in NAMES if not is_name(getattr(sent, name))]
    if sent.uid and not is_name(sent.uid):
        faults.append(f"uid has at most {NAME_LIMIT} characters, none of them a control character")
    return faults


def _otherwise(zone: str, family: Family, zones: Zones) -> Refusal | None:
    if zone not in zones.names:
        known = ", ".join(f"'{name}'" for name in zones.names)
        return Refusal(Reason.UNKNOWN_ZONE, f"invalid zone '{zone[:100]}', must be one of: {known}")
    if pool_key(zone, family) not in zones.pools:
        text = f"no prefixes found for zone {zone} with IP family ipv{int(family)}"
        return Refusal(Reason.FAMILY_ABSENT, text)
    return None


def _address(text: str, family: Family) -> str | None:
    if not text:
        return None
    try:
        found, address = canonical(text)
    except ValueError:
        raise HttpRefusal(400, f"invalid ip prefix: {text[:100]}") from None
    if found != family:
        raise HttpRefusal(400, "invalid ip familiy for the provided address")
    return address
