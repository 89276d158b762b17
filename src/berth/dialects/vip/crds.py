"""The four CRDs of `paas.org/v1`. What a schema can say is said here: it holds while no webhook answers."""

from __future__ import annotations

from berth.dialects.crd import (
    Crd,
    Names,
    Schema,
    checked,
    column,
    conditions,
    integer,
    listing,
    record,
    root,
    rule,
    text,
)
from berth.dialects.vip import kinds

OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
# IPv6 has too many spellings for a pattern that a person can check; what passes and is none the status tells.
CIDR = rf"^(({OCTET}\.){{3}}{OCTET}/([0-9]|[12][0-9]|3[0-2])|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*/[0-9]{{1,3}})$"
LONGEST_LABEL = 63
AGE = column("AGE", ".metadata.creationTimestamp", "date")


def crds() -> tuple[Schema, ...]:
    return tuple(crd.manifest() for crd in (_group(), _ip(), _virtual_ip(), _mapping()))


def _segment() -> dict[str, Schema]:
    return {
        "segment": text(
            "The addresses, as a CIDR of IPv4 or IPv6. Nothing in it is reserved by itself.",
            pattern=CIDR,
            maxLength=64,
        ),
        "excludedIPs": listing(text(), "Single addresses that are never handed out."),
    }


def _usable_as_label(schema: Schema) -> Schema:
    fits = f"self.metadata.name.size() <= {LONGEST_LABEL}"
    told = f"the name must be no longer than {LONGEST_LABEL} characters: IP objects carry it as a label"
    return checked(schema, rule(fits, told))


def _group() -> Crd:
    counts = {name: integer(format="int64") for name in ("total", "used", "free", "reserved", "outside")}
    status = record(
        {
            "addresses": record(counts, description="How many addresses there are, and their use."),
            "conditions": conditions(),
        }
    )
    spec = record(_segment(), ("segment", "excludedIPs"))
    columns = (
        column("Segment", ".spec.segment"),
        column("Used", ".status.addresses.used", "integer", priority=1),
        column("Free", ".status.addresses.free", "integer", priority=1),
        column("Reserved", ".status.addresses.reserved", "integer", priority=1),
        column("Ready", ".status.conditions[?(@.type=='Ready')].status", priority=1),
        AGE,
    )
    schema = _usable_as_label(root(spec, status, ("spec",)))
    return Crd(kinds.IPGROUP, schema, columns, Names(("ipg",)))


def _ip() -> Crd:
    columns = (
        column("IPGroup", f".metadata.labels.{kinds.GROUP_LABEL}"),
        column("GroupSegmentMapping", f".metadata.labels.{kinds.MAPPING_LABEL}"),
        column("Owner", r".metadata.annotations.virtualips\.paas\.il/owner"),
        AGE,
    )
    return Crd(kinds.IP, root(record({}), record({})), columns)


def _virtual_ip() -> Crd:
    spec = record(
        {
            "service": text("The Service to expose, in the same namespace."),
            "ip": text("The address that is wanted; without it any."),
        },
        ("service",),
    )
    fields = ("ip", "service", "clonedService", "gsm", "keepalivedGroup", "message", "state")
    columns = (
        column("Service", ".status.service"),
        column("IP", ".status.ip"),
        column("State", ".status.state"),
        AGE,
    )
    status = record({name: text() for name in fields})
    return Crd(kinds.VIRTUAL_IP, root(spec, status, ("spec",)), columns, Names(("vip",)))


def _mapping() -> Crd:
    fields = {"keepalivedGroup": text("The keepalived group that carried it."), **_segment()}
    columns = (
        column("Keepalived Group", ".spec.keepalivedGroup"),
        column("Segment", ".spec.segment"),
        AGE,
    )
    spec = record(fields, ("keepalivedGroup", "segment", "excludedIPs"))
    schema = _usable_as_label(root(spec, record({}), ("spec",)))
    return Crd(kinds.MAPPING, schema, columns, Names(("gsm",)))
