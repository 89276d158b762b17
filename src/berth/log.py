"""Structured logging: a constant sentence plus keys, one line each, tab separated as operators know it:

    2025-06-23T12:27:08Z    INFO    berth.metal3    address bound    {"claim": "default/c1"}

`bound()` puts keys on every line of one piece of work (the ref being reconciled). Values whose key is on
the deny list are never rendered; secrets are a type that prints `***` (store.secrets) and stay out anyway.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TextIO

import orjson
import structlog

from berth.errors import UserError

LEVELS = ("debug", "info", "warning", "error")
NEVER = frozenset({"secret", "new_secret", "token", "password", "authorization", "body", "key_data"})


class Logger:
    """The four verbs we use, typed; a thin face on structlog so that call sites stay short."""

    def __init__(self, name: str) -> None:
        self._lazy = structlog.get_logger(source=name)  # configured later, in main
        self._processors: object = None  # of the configuration that `_log` was made for
        self._log: Any = None

    def debug(self, event: str, **keys: Any) -> None:
        self._made().debug(event, **keys)

    def info(self, event: str, **keys: Any) -> None:
        self._made().info(event, **keys)

    def warning(self, event: str, **keys: Any) -> None:
        self._made().warning(event, **keys)

    def error(self, event: str, **keys: Any) -> None:
        self._made().error(event, **keys)

    def _made(self) -> Any:
        """Made once for each configuration: for each line it would cost as much as the line."""
        processors = structlog.get_config()["processors"]
        if processors is not self._processors:
            self._processors, self._log = processors, self._lazy.bind()
        return self._log


# For libraries that would log what they were sent: a broken request may hold a secret.
SILENT = logging.Logger("silent", logging.CRITICAL + 1)


def get(name: str) -> Logger:
    return Logger(name)


@contextmanager
def bound(**keys: Any) -> Iterator[None]:
    with structlog.contextvars.bound_contextvars(**keys):
        yield


def configure(level: str = "info", stream: TextIO | None = None, *, json: bool = False) -> None:
    """Call once, in the process that owns the log."""
    if level.lower() not in LEVELS:
        raise UserError(f"--log-level must be one of {', '.join(LEVELS)}, not {level!r}.")
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _redact,
            structlog.processors.format_exc_info,
            _json_line if json else _tabbed,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: _Lines(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )


class _Lines:
    """A line that cannot be written, because the disk is full or nobody reads any more, is lost: the work
    goes on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def _write(self, line: str) -> None:
        with suppress(OSError, ValueError):  # a closed stream is a ValueError
            print(line, file=self._stream, flush=True)

    debug = info = warning = error = _write


def _redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in NEVER & event.keys():
        event[key] = "***"
    return event


def _tabbed(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    level = str(event.pop("level", "info")).upper()
    name = event.pop("source", "berth")
    message = event.pop("event", "")
    trace = event.pop("exception", None)
    line = "\t".join((_now(), level, str(name), str(message)))
    if event:
        line += "\t" + _dumps(event)
    return line if trace is None else f"{line}\n{trace}"


def _json_line(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return _dumps({"time": _now(), **event})


def _dumps(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _now() -> str:
    return _stamp(int(time.time()))


@lru_cache(maxsize=1)
def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
