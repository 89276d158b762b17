"""The other systems the API talks to, each off until configured: ROR's events, Splunk's collector, NetBox.
None of them is waited for by a request, and none of them can stop the ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from berth.central.journal import Journal
from berth.central.metrics import ApiMetrics
from berth.central.settings import ApiSettings
from berth.store.ledger import Ledger


class Neighbours:
    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self.journal = Journal()

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: ApiSettings) -> AsyncIterator[Neighbours]:
        yield cls(settings)

    def work(self, ledger: Ledger, metrics: ApiMetrics) -> list[Coroutine[Any, Any, None]]:
        """What has to run beside the server."""
        return []
