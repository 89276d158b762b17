"""The other systems the API talks to, each off until configured: ROR's events, Splunk's collector,
NetBox. None of them is waited for by a request, and none of them can stop the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from berth.central.integrations.disk_queue import DiskQueue
from berth.central.integrations.event_log import EventLog
from berth.central.integrations.history_feed import HistoryFeed
from berth.central.integrations.netbox import NetboxMirror
from berth.central.integrations.ror import Listener
from berth.central.integrations.splunk import Forwarder
from berth.central.metrics import ApiMetrics
from berth.central.settings import ApiSettings
from berth.central.tokens import read_token
from berth.errors import UserError, file_fault
from berth.store.ledger import Ledger

PAUSE_SECONDS = 5.0
Work = Callable[[], Coroutine[Any, Any, None]]


class Integrations:
    def __init__(self, settings: ApiSettings, metrics: ApiMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._spool: DiskQueue | None = None
        self.journal = EventLog()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ApiSettings, metrics: ApiMetrics) -> AsyncIterator[Integrations]:
        for flag, path in _token_files(settings):
            _refuse_unreadable(flag, path)
        neighbours = cls(settings, metrics)
        if settings.splunk.enabled:
            splunk = settings.splunk
            neighbours._spool = DiskQueue(
                splunk.queue_file, splunk.queue_events, metrics.hec_dropped.inc, splunk.queue_bytes
            )
            neighbours.journal = EventLog(neighbours._spool.add)
        try:
            yield neighbours
        finally:
            if neighbours._spool is not None:
                await neighbours._spool.close()

    async def work(self, ledger: Ledger, who: str) -> list[Coroutine[Any, Any, None]]:
        """What has to run beside the server; asked for before it serves."""
        settings = self._settings
        found: list[Work] = []
        if settings.ror.url:
            found.append(Listener(settings.ror, ledger.engine, self._metrics, self.journal).listen_forever)
        if self._spool is not None:
            forwarder = Forwarder(settings.splunk, self._spool, self._metrics)
            chronicle = HistoryFeed(ledger.engine, self._spool, self.journal, who)
            await chronicle.begin()
            found += [forwarder.store_forever, forwarder.forward_forever, chronicle.tell_forever]
        if settings.netbox.url:
            mirror = NetboxMirror(settings.netbox, ledger.engine, self._metrics, who, self.journal)
            found.append(mirror.mirror_forever)
        return [for_good(one, self.journal) for one in found]


async def for_good(work: Work, journal: EventLog, pause_seconds: float = PAUSE_SECONDS) -> None:
    """Whatever a neighbour says that we did not think of, its work begins again and the server goes on."""
    while True:
        try:
            await work()
        except Exception as cause:
            error = type(cause).__name__
            journal.tell("work begins again", "central/neighbours", level="error", error=error)
        await asyncio.sleep(pause_seconds)


def _token_files(settings: ApiSettings) -> list[tuple[str, Path | None]]:
    return [
        ("--ror-token-file", settings.ror.token_file if settings.ror.url else None),
        ("--splunk-token-file", settings.splunk.token_file if settings.splunk.enabled else None),
        ("--netbox-token-file", settings.netbox.token_file if settings.netbox.url else None),
    ]


def _refuse_unreadable(flag: str, path: Path | None) -> None:
    try:
        if path is not None:
            read_token(path)
    except (OSError, ValueError) as cause:
        raise UserError(f"{flag} {path} cannot be read: {file_fault(cause)}.") from cause
