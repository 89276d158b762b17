"""The ledger's records as people and programs want to see them; never a secret, nor what is stored of one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson
import typer

from berth.leasing.holders import Entry
from berth.leasing.usage import Usage
from berth.net.host import masked
from berth.store.operators import OperatorRow, SilentCluster
from berth.store.queries import LedgerRecord
from berth.store.requests import family_of, zone_of
from berth.store.rows import HistoryRow

Json = dict[str, Any]


def time_text(at: int | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def print_json(value: Any) -> None:
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_table(columns: tuple[str, ...], rows: Iterable[Iterable[str]]) -> None:
    for line in table_lines(columns, rows):
        typer.echo(line)


def table_lines(columns: tuple[str, ...], rows: Iterable[Iterable[str]]) -> list[str]:
    """As wide as what is in it: a name or an address that was cut to fit a terminal would be another's."""
    lines = [columns, *(tuple(row) for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def entry_json(entry: Entry) -> Json:
    found: Json = {
        "service_name": entry.identity.service_name,
        "namespace_id": entry.identity.namespace_id,
        "cluster_id": entry.identity.cluster_id,
        "retention_period_days": entry.retention_days,
        "deny_external_cleanup": entry.deny,
    }
    if entry.expires_at is not None:
        found["expires_at"] = time_text(entry.expires_at)
    return found


def record_json(record: LedgerRecord) -> Json:
    """Upstream's keys; where it shows the secret, ours shows that there is one."""
    return {
        "secret": "*********",
        "zone": record.zone,
        "ip_family": f"ipv{family_of(record.address.pool)}",
        "address": masked(record.address.address),
        "services": [entry_json(row.entry) for row in record.holders],
    }


def record_text(record: LedgerRecord) -> str:
    lines = [f"Address:\t{masked(record.address.address)}", f"Zone:\t{record.zone}"]
    for row in record.holders:
        entry = row.entry
        lines += [
            f"- Service Name:\t{entry.identity.service_name}",
            f"  Namespace ID:\t{entry.identity.namespace_id}",
            f"  Cluster ID:\t{entry.identity.cluster_id}",
            f"  Retention Period Days:\t{entry.retention_days}",
            f"  Deny External Cleanup:\t{str(entry.deny).lower()}",
        ]
        if entry.expires_at is not None:
            lines.append(f"  Expires:\t{time_text(entry.expires_at)}")
    return "\n".join(lines)


def print_records(records: list[LedgerRecord], now: int, *, as_json: bool) -> None:
    if as_json:
        print_json([record_json(record) | {"state": record.state(now)} for record in records])
        return
    columns = ("ADDRESS", "ZONE", "STATE", "SERVICE", "NAMESPACE", "CLUSTER", "RETENTION", "DENY", "EXPIRES")
    print_table(columns, (row for record in records for row in _rows(record, now)))


def _rows(record: LedgerRecord, now: int) -> Iterable[Iterable[str]]:
    head = (masked(record.address.address), record.zone, record.state(now))
    for holder in record.holders:
        entry, who = holder.entry, holder.entry.identity
        days, deny, ends = f"{entry.retention_days}d", str(entry.deny).lower(), time_text(entry.expires_at)
        yield (*head, who.service_name, who.namespace_id, who.cluster_id, days, deny, ends)
        head = ("", "", "")


def print_usage(usage: dict[str, Usage], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "zone": zone_of(key),
                    "ip_family": f"ipv{family_of(key)}",
                    **{name: str(getattr(one, name)) for name in ("total", "used", "free", "outside")},
                }
                for key, one in usage.items()
            ]
        )
        return
    print_table(
        ("ZONE", "FAMILY", "TOTAL", "USED", "FREE", "OUTSIDE"),
        (
            (zone_of(key), f"ipv{family_of(key)}", *map(str, (one.total, one.used, one.free, one.outside)))
            for key, one in usage.items()
        ),
    )


def print_history(events: list[HistoryRow], *, as_json: bool) -> None:
    shown = [
        {
            "at": time_text(event.at),
            "event": event.event,
            "service_name": event.who.service_name if event.who else "",
            "namespace_id": event.who.namespace_id if event.who else "",
            "cluster_id": event.who.cluster_id if event.who else "",
            "detail": event.detail,
        }
        for event in events
    ]
    if as_json:
        print_json(shown)
    else:
        columns = ("AT", "EVENT", "SERVICE", "NAMESPACE", "CLUSTER", "DETAIL")
        print_table(columns, (map(str, one.values()) for one in shown))


def print_operators(operators: Iterable[OperatorRow], now: int, *, as_json: bool) -> None:
    rows = [
        {
            "cluster_id": one.cluster_id,
            "epoch": one.epoch,
            "state": "living" if one.live_until > now else "silent",
            "reports": one.sequence,
            "first_at": time_text(one.first_at),
            "seen_at": time_text(one.seen_at),
            "missing": one.missing.count,
        }
        for one in operators
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("CLUSTER", "EPOCH", "STATE", "REPORTS", "FIRST", "LAST", "MISSING")
    print_table(columns, ([str(value) for value in row.values()] for row in rows))


def print_silent(clusters: Iterable[SilentCluster], now: int, *, as_json: bool) -> None:
    rows = [
        {
            "cluster_id": one.cluster_id,
            "seen_at": time_text(one.seen_at),
            "silent_seconds": (now - one.seen_at) // 1000,
            "entries": one.entries,
        }
        for one in clusters
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("CLUSTER", "LAST", "SILENT SECONDS", "ENTRIES")
    print_table(columns, ([str(value) for value in row.values()] for row in rows))
