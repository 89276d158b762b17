"""Heartbeats without a report: an operator says that it is still there. They come from every cluster every
ten seconds, so all that arrive within a second are noted in one transaction; each waits for it, and so is
told what is true in every replica. Nothing but the time of a row that a report has made changes here.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from berth import log
from berth.errors import StoreDown
from berth.store import operators
from berth.store.engine import Engine, Transaction
from berth.store.newcomers import Newcomers
from berth.store.operators import Beat

EVERY_SECONDS = 1.0
WAITING = 10_000  # heartbeats; more are sent away
SPEAKING = """SELECT cluster_id, epoch, sequence, live_until FROM operators WHERE cluster_id = ANY($1)"""


@dataclass(frozen=True, slots=True)
class Noted:
    """What became of a heartbeat."""

    counted: bool  # False: nobody knows this process; a report is needed
    frozen: bool = False


class Heartbeats:
    """One per process; `run` belongs to the server's task group."""

    def __init__(self, engine: Engine, every_seconds: float = EVERY_SECONDS) -> None:
        self._engine = engine
        self._every_seconds = every_seconds
        self._waiting: list[tuple[Beat, asyncio.Future[Noted]]] = []
        self.newcomers = Newcomers()

    async def hear(self, beat: Beat) -> Noted:
        if self.newcomers.know(beat):
            return Noted(counted=True)
        if len(self._waiting) >= WAITING:
            raise StoreDown("too many heartbeats wait for the database")
        noted: asyncio.Future[Noted] = asyncio.get_running_loop().create_future()
        self._waiting.append((beat, noted))
        return await noted

    async def run(self) -> None:
        """Also when there is nothing to note: somebody listens, and that is written down now and then."""
        quiet_until = 0.0
        while True:
            try:
                if self._waiting or time.monotonic() >= quiet_until:
                    await self.note()
                    quiet_until = time.monotonic() + operators.LISTENING_MS / 1000
            except StoreDown as cause:
                log.get("berth.store").debug("heartbeats not noted", cause=str(cause))
            await asyncio.sleep(self._every_seconds)

    async def note(self) -> None:
        """Note all that wait."""
        waiting, self._waiting = self._waiting, []
        try:
            async with self._engine.transaction(slow=True) as tx:
                noted = await self._noted(tx, [beat for beat, _ in waiting])
        except BaseException as cause:
            failure = cause if isinstance(cause, StoreDown) else StoreDown("heartbeats could not be noted")
            for _, future in waiting:
                if not future.done():
                    future.set_exception(failure)
            raise
        for (_, future), one in zip(waiting, noted, strict=True):
            if not future.done():
                future.set_result(one)

    async def _noted(self, tx: Transaction, beats: list[Beat]) -> list[Noted]:
        now = await operators.listened(tx)
        if not beats:
            return []
        clusters = sorted({beat.cluster_id for beat in beats})
        found = await tx.rows(SPEAKING, clusters)
        sequences = {(row[0], row[1]): row[2] for row in found}
        living = {(row[0], row[1]) for row in found if row[3] > now}
        known = [beat for beat in beats if (beat.cluster_id, beat.epoch) in sequences]
        fresh = [beat for beat in known if beat.sequence > sequences[beat.cluster_id, beat.epoch]]
        living |= {(beat.cluster_id, beat.epoch) for beat in fresh}
        await tx.many(operators.ALIVE, [_row(beat, now) for beat in sorted(fresh, key=_place)])
        speaking = Counter(cluster for cluster, _ in living)
        return [
            Noted(counted=True, frozen=speaking[beat.cluster_id] > 1)
            if (beat.cluster_id, beat.epoch) in sequences
            else Noted(counted=False)
            for beat in beats
        ]


def _place(beat: Beat) -> tuple[str, str, int]:
    """Replicas lock rows in one order."""
    return beat.cluster_id, beat.epoch, beat.sequence


def _row(beat: Beat, now: int) -> tuple[str, str, int, int, int]:
    return beat.cluster_id, beat.epoch, beat.sequence, now, beat.live_until(now)
