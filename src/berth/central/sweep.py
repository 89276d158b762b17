"""The sweep's clock: one pass every so often, in whichever replica has the duty; failures wait for the
next.
"""

from __future__ import annotations

import asyncio
import time

from berth import log
from berth.central.journal import Journal
from berth.central.metrics import ApiMetrics
from berth.errors import StoreDown
from berth.store.counts import count_states
from berth.store.engine import Engine
from berth.store.operators import all_frozen
from berth.store.sweep import Sweeper, Swept

SHARE = 20  # counting takes no more than one part in so many of the time


async def sweep_forever(sweeper: Sweeper, seconds: float, metrics: ApiMetrics, journal: Journal) -> None:
    count_at = 0.0
    while True:
        await asyncio.sleep(seconds)
        try:
            swept = await sweep_once(sweeper, metrics)
            _tell(swept, journal)
            if time.monotonic() >= count_at:
                count_at = time.monotonic() + SHARE * await count(sweeper.ledger.engine, metrics, swept)
        except StoreDown as cause:
            log.get("berth.sweep").warning("sweep put off", cause=str(cause))
        except Exception as cause:  # the server goes on, and the next pass tries again
            log.get("berth.sweep").error("sweep failed", error=type(cause).__name__)


async def sweep_once(sweeper: Sweeper, metrics: ApiMetrics) -> Swept:
    started = time.perf_counter()
    swept = await sweeper.sweep()
    metrics.swept(time.perf_counter() - started, swept.addresses, swept.held_back)
    if swept.held_back == "ClockJumped":
        log.get("berth.sweep").error(
            "the clock jumped, nothing is freed until it is accepted with `berth ledger accept-clock`"
        )
    elif swept.entries:
        log.get("berth.sweep").info("swept", entries=swept.entries, freed=swept.addresses)
    metrics.frozen.set(len(await all_frozen(sweeper.ledger.engine)))
    return swept


async def count(engine: Engine, metrics: ApiMetrics, swept: Swept) -> float:
    """Addresses and entries by state, which reads all of them: only in the replica that has the duty.
    Returns how many seconds it took.
    """
    started = time.monotonic()
    metrics.states(*(({}, {}) if swept.held_back == "OtherReplica" else await count_states(engine)))
    return time.monotonic() - started


def _tell(swept: Swept, journal: Journal) -> None:
    if swept.held_back == "ClockJumped":
        journal.app("sweep held back", "central/sweep", level="error", reason=swept.held_back)
    elif swept.entries:
        journal.app("swept", "central/sweep", entries=swept.entries, freed=swept.addresses)
