"""The CustomResourceDefinitions of kubipam's two kinds.

What upstream's controller calls `Invalid` must reach ours, so the schema has no enums and no bounds on sizes;
lengths are bounded only because a rule of the API server needs to know its cost. Specs are immutable by such
rules, which hold while no operator runs; zero values and absent ones are the same, as upstream writes either.
Such a rule compares two specs, so the spec itself is required: nobody gets round it by way of none.
"""

from __future__ import annotations

from typing import Any

from berth.dialects.crd import (
    Crd,
    Names,
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
from berth.dialects.kubipam.kinds import FIRST_MATCH, RANGE, REQUEST

FIXED = "the specification of {} must never be modified; delete it and create a new one"


def crds() -> tuple[dict[str, Any], ...]:
    return _range().manifest(), _request().manifest()


def _range() -> Crd:
    spec = record(
        {
            "ranges": listing(
                text(maxLength=256), "CIDRs, <ip>-<ip> or single addresses, all of one family.", maxItems=4096
            ),
            "chunkSize": integer("Network bits of a grant whose request names no size; 0: one address."),
            "mode": text(
                "FirstMatch: the smallest free block that fits. RoundRobin: the next one.",
                default=FIRST_MATCH,
                maxLength=64,
            ),
        },
        required=("ranges",),
        description="What is handed out. Never to be modified.",
    )
    same = (
        "self.ranges == oldSelf.ranges",
        _same_number("chunkSize"),
        f"{_mode('self')} == {_mode('oldSelf')}",
    )
    return Crd(
        RANGE,
        root(_fixed(spec, same, "an IPAMRange"), _range_status(), ("spec",)),
        columns=(
            column("Mode", ".spec.mode"),
            column("STATE", ".status.state"),
            *(
                column(name.capitalize(), f".status.addresses.{name}", "integer", priority=1)
                for name in ("total", "used", "free", "reserved")
            ),
        ),
        names=Names(short=("iprange",)),
    )


def _range_status() -> dict[str, Any]:
    return record(
        {
            "state": text("Ready, Invalid or Deleting."),
            "message": text("Why it is not Ready."),
            "roundRobin": listing(text(), "Where the next block is looked for, one per prefix length."),
            "taken": listing(text(), "All that is taken, as merged ranges: what no other request can get."),
            "pending": listing(text(), "Grants as <uid> <cidr> that were on their way at the last write."),
            "released": listing(text(), "UIDs of requests that gave back their block and are about to go."),
            "kept": listing(text(), "What of it waits for requests that a backup has yet to bring back."),
            "addresses": record(
                {name: integer(format="int64") for name in ("total", "used", "free", "reserved")},
                description="How many addresses there are; reserved: kept for requests of a backup.",
            ),
            "conditions": conditions(),
            "edition": text("Another one with every write: tells two pages of one version apart."),
        }
    )


def _request() -> Crd:
    reference = record(
        {
            "name": text("Of the IPAMRange.", maxLength=253),
            "namespace": text("Of the IPAMRange; default: the request's own.", maxLength=63),
        },
        required=("name",),
        description="The IPAMRange that serves the request.",
    )
    spec = record(
        {
            "ipam": reference,
            "size": integer("Network bits of the wanted block; 0: as the range says."),
            "request": text("The very CIDR or address that is wanted.", maxLength=256),
            "description": text("Free text, never read.", maxLength=16384),
        },
        required=("ipam",),
        description="What is asked for. Never to be modified.",
    )
    same = (
        "self.ipam.name == oldSelf.ipam.name",
        _same_text("ipam.__namespace__"),
        _same_number("size"),
        _same_text("request"),
        _same_text("description"),
    )
    return Crd(
        REQUEST,
        root(_fixed(spec, same, "an IPAMRequest"), _request_status(), ("spec",)),
        columns=(
            column("IPAM", ".spec.ipam.name"),
            column("Size", ".spec.size", "integer"),
            column("STATE", ".status.state"),
            column("CIDR", ".status.cidr"),
        ),
        names=Names(short=("ipreq",)),
    )


def _request_status() -> dict[str, Any]:
    return record(
        {
            "cidr": text("What was granted, always as a CIDR."),
            "state": text("Ready, Busy or Invalid."),
            "message": text("Why it is not Ready."),
            "range": text("Namespace and name of the IPAMRange the block was taken from."),
            "conditions": conditions(),
        }
    )


def _fixed(spec: dict[str, Any], same: tuple[str, ...], what: str) -> dict[str, Any]:
    return checked(spec, *(rule(one, FIXED.format(what)) for one in same))


def _same_number(field: str) -> str:
    return " == ".join(f"(has({who}.{field}) ? {who}.{field} : 0)" for who in ("self", "oldSelf"))


def _same_text(field: str) -> str:
    return " == ".join(f"(has({who}.{field}) ? {who}.{field} : '')" for who in ("self", "oldSelf"))


def _mode(who: str) -> str:
    return f"(has({who}.mode) && {who}.mode != '' ? {who}.mode : '{FIRST_MATCH}')"
