"""The sweep's clock: one pass every so often, in whichever replica has the lease; failures wait for the
next.
"""

from __future__ import annotations

import asyncio
import time

from berth.central.integrations.event_log import EventLog
from berth.central.metrics import ApiMetrics
from berth.errors import StoreDown
from berth.store.counts import count_states
from berth.store.engine import Engine
from berth.store.operators import all_frozen, silent
from berth.store.sweep import Sweeper, Swept

CALLER = "central/sweep"
SHARE = 20  # counting takes no more than one part in so many of the time
DISTRUST = {
    "ClockJumped": "the clock jumped; set it right, or accept it with `berth ledger accept-clock`",
    "ClocksApart": "the dates of this server and of its database differ; set the wrong one right",
}


async def sweep_forever(sweeper: Sweeper, seconds: float, metrics: ApiMetrics, journal: EventLog) -> None:
    count_at = 0.0
    while True:
        await asyncio.sleep(seconds)
        try:
            swept = await sweep_once(sweeper, metrics)
            tell(swept, journal)
            if time.monotonic() >= count_at:
                count_at = time.monotonic() + SHARE * await count(sweeper.ledger.engine, metrics, swept)
        except StoreDown as cause:
            journal.tell("sweep put off", CALLER, level="warn", cause=str(cause))
        except Exception as cause:  # the server goes on, and the next pass tries again
            journal.tell("sweep failed", CALLER, level="error", error=type(cause).__name__)


async def sweep_once(sweeper: Sweeper, metrics: ApiMetrics) -> Swept:
    started = time.perf_counter()
    swept = await sweeper.sweep()
    metrics.swept(time.perf_counter() - started, swept.addresses, swept.held_back)
    metrics.clock_doubted.set(swept.doubted_ms / 1000)
    engine = sweeper.ledger.engine
    metrics.frozen.set(len(await all_frozen(engine)))
    metrics.silent(*await silent(engine))
    return swept


async def count(engine: Engine, metrics: ApiMetrics, swept: Swept) -> float:
    """Addresses and entries by state, which reads all of them: only in the replica that has the lease.
    Returns how many seconds it took.
    """
    started = time.monotonic()
    metrics.states(*(({}, {}) if swept.held_back == "OtherReplica" else await count_states(engine)))
    return time.monotonic() - started


def tell(swept: Swept, journal: EventLog) -> None:
    if swept.held_back in DISTRUST:
        what = f"nothing is freed: {DISTRUST[swept.held_back]}"
        journal.tell(what, CALLER, level="error", reason=swept.held_back)
    elif swept.doubted_ms:
        what = "what lapses is freed later: nobody measured the time while this server was off"
        hint = "let NTP set the clock, or accept it with `berth ledger accept-clock`"
        journal.tell(what, CALLER, level="warn", later_seconds=swept.doubted_ms // 1000, hint=hint)
    if swept.entries:
        journal.tell("swept", CALLER, entries=swept.entries, freed=swept.addresses)
