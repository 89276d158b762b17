"""Events of requests and of the application, in the shape Splunk's collector wants. Only fields that are
listed here leave the process: a body is shown by its known keys, secrets as asterisks, and a body that did
not parse not at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from berth import log

MASK = "*********"
SHOWN = ("zone", "ip_family", "address", "pending", "cluster_id")
SHOWN_OF_SERVICE = (
    "service_name",
    "namespace_id",
    "cluster_id",
    "retention_period_days",
    "deny_external_cleanup",
)
SECRETS = ("secret", "new_secret")


class EventLog:
    """Turns what happened into events and hands them to `sink`; without one nothing is built."""

    def __init__(self, sink: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._sink = sink

    @property
    def on(self) -> bool:
        return self._sink is not None

    def tell(self, message: str, caller: str, *, level: str = "info", **fields: Any) -> None:
        """To the log and to Splunk alike."""
        logger = log.get(f"berth.{caller.rpartition('/')[2]}")
        {"info": logger.info, "warn": logger.warning, "error": logger.error}[level](message, **fields)
        self.app(message, caller, level=level, **fields)

    def app(
        self, message: str, caller: str, *, level: str = "info", at: float | None = None, **fields: Any
    ) -> None:
        """To Splunk only: what is in the log, or in the history, already."""
        self._send("app", {"level": level, "message": message, "caller": caller, **fields}, at)

    def http(self, fields: Mapping[str, Any]) -> None:
        self._send("http", {"level": "info", "message": "http request", "caller": "central/app", **fields})

    def error(self, fields: Mapping[str, Any]) -> None:
        self._send("http", {"level": "error", "message": "request error", "caller": "central/app", **fields})

    def _send(self, kind: str, event: dict[str, Any], at: float | None = None) -> None:
        if self._sink is not None:
            self._sink({"kind": kind, "time": at or round(time.time(), 3), "event": event})


def shown(body: object) -> dict[str, Any] | None:
    """The part of a parsed body that may be seen."""
    if not isinstance(body, Mapping):
        return None
    seen = {key: _plain(body[key]) for key in SHOWN if key in body}
    service = body.get("service")
    if isinstance(service, Mapping):
        seen["service"] = {key: _plain(service[key]) for key in SHOWN_OF_SERVICE if key in service}
    masked = {str(key): MASK for key in body if str(key).lower() in SECRETS}
    return seen | masked


def _plain(value: object) -> object:
    """Text and numbers as they are; anything deeper was not asked for and is not shown."""
    if isinstance(value, str):
        return value[:200]
    return value if isinstance(value, int | float | bool) or value is None else "?"
