"""The leader's heartbeat: all addresses that live Services list, told to the IPAM-API under an epoch of this
process, and between two such reports every few seconds only that it is still there. What the ledger lost
comes back that way; and as long as two operators speak for one cluster id, one of them is a copy, so the
IPAM-API releases nothing of it. After a crash a successor looks like one, until the heartbeats are missed.

Nothing is released before the first report was heard: a copy is noticed before it can do harm. Upstream's
IPAM-API has no such call; then there is nothing to wait for.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from berth import log
from berth.central.client import ApiClient, Ask, Compared, Heartbeat, Inventory
from berth.dialects.vitistack.context import Parts
from berth.dialects.vitistack.ipam_client import ask_for
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.record_store import Filed
from berth.dialects.vitistack.records import Record
from berth.errors import ApiError, ApiRefused, KubeError
from berth.metrics import Metrics
from berth.secret import Secret

Object = dict[str, Any]
UNKNOWN_CALL = (404, 405)
AGAIN_SECONDS = 2.0
LEAVING_SECONDS = 1.0
ALIVE_SECONDS = 10.0  # between two heartbeats
MOST = 20_000  # addresses in one report
PORTION = 200  # of them between which others get their turn
LISTS = ("adopted", "missing", "unknown", "conflict")

_log = log.get("ipam-operator")


class Inventories:
    def __init__(self, parts: Parts, filed: Filed, api: ApiClient, metrics: Metrics) -> None:
        self._parts = parts
        self._filed = filed
        self._api = api
        self._metrics = metrics
        self._epoch = uuid.uuid4().hex
        self._sequence = 0
        self._copies: dict[str, Secret] = {}  # of users' Secrets, by record: not read anew for each report
        self._asks: list[Ask] = []  # of the last report
        self._beats = True  # whether the other side knows heartbeats without a report
        self._frozen = False
        self.heard = False  # releases may begin
        self.thawed: Callable[[], None] = _nothing  # called when what was refused may be released
        self.failure: ApiError | None = None  # why it was not heard yet
        self._cause = ""  # of the failure that was told last

    async def run(self) -> None:
        if not self._parts.settings.api_url:
            return
        try:
            await self._tell_for_ever()
        finally:
            if self._sequence:
                with suppress(ApiError, KubeError, No, TimeoutError):
                    async with asyncio.timeout(LEAVING_SECONDS):
                        await self._report(leaving=True)

    async def _tell_for_ever(self) -> None:
        while True:
            counted = await self._tell()
            if not self.heard:
                await asyncio.sleep(AGAIN_SECONDS)
            elif counted:
                await self._stay()
            else:
                await asyncio.sleep(self._seconds)

    async def _stay(self) -> None:
        """Say that we are there until the next report is due, or asked for."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._seconds
        while (left := ends_at - loop.time()) > 0:
            pause = min(AGAIN_SECONDS, self._alive_seconds) if self._frozen else self._alive_seconds
            await asyncio.sleep(min(left, pause))
            if loop.time() < ends_at and not await self._beat():
                return

    async def _beat(self) -> bool:
        """False: it takes a report instead."""
        self._sequence += 1
        alive_ms = round(self._alive_seconds * 1000)
        try:
            cluster_id = await self._parts.places.cluster_id()
            noted = await self._api.beat(Heartbeat(cluster_id, self._epoch, self._sequence, alive_ms))
        except ApiRefused as no:
            if no.status not in UNKNOWN_CALL:
                return True
            knew, self._beats = self._beats, False
            return not knew  # the last report has promised what nobody hears
        except (ApiError, KubeError, No):
            return True
        self._beats = True
        if noted.counted:
            self._freeze(noted.frozen)
        return noted.counted

    @property
    def _alive_seconds(self) -> float:
        return min(ALIVE_SECONDS, max(0.1, self._seconds / 3))

    @property
    def _seconds(self) -> float:
        return self._parts.settings.heartbeat_seconds

    async def _tell(self) -> bool:
        """Whether it counted."""
        try:
            compared = await self._report()
        except ApiRefused as no:
            if no.status in UNKNOWN_CALL and not self.heard:
                self.heard = True  # there is nobody who wants to hear it; asked again all the same
            self.failure = no
            self._complain("inventory not taken", no.message)
        except (ApiError, KubeError, No) as error:
            self.failure = error if isinstance(error, ApiError) else None
            self._complain("inventory not sent", str(error))
        else:
            self._cause = ""
            self.heard = True
            self._note(compared)
            return compared.counted
        return False

    def _complain(self, event: str, cause: str) -> None:
        """Once: it may last."""
        if cause != self._cause:
            _log.warning(event, cause=cause)
            self._cause = cause

    async def _report(self, *, leaving: bool = False) -> Compared:
        if not leaving:
            self._asks = await self._listed()
        asks = self._asks
        self._sequence += 1
        beat = max(1, round(self._seconds))
        cluster_id = await self._parts.places.cluster_id()
        if len(asks) > MOST:
            _log.error("inventory is too long, its end is not told", addresses=len(asks), most=MOST)
        alive_ms = round(self._alive_seconds * 1000) if self._beats else 0
        report = Inventory(
            cluster_id, self._epoch, self._sequence, tuple(asks[:MOST]), beat, leaving, alive_ms
        )
        return await self._api.report(report)

    async def _listed(self) -> list[Ask]:
        held, asks = self._held(), []
        for at, record in enumerate(held, 1):
            if (ask := await self._ask(record)) is not None:
                asks.append(ask)
            if at % PORTION == 0:
                await asyncio.sleep(0)
        self._copies = {one.name: self._copies[one.name] for one in held if one.name in self._copies}
        return asks

    def _held(self) -> list[Record]:
        """What its Service lists now, and was confirmed."""
        return [
            record
            for record in self._filed
            if record.confirmed and not record.released and not record.replaced and self.is_listed(record)
        ]

    def is_listed(self, record: Record) -> bool:
        listing = self._parts.neighbours.listing(record.address)
        return any(one["metadata"]["uid"] == record.uid for one in listing)

    async def _ask(self, record: Record) -> Ask | None:
        secret = self._copies.get(record.name) if record.kept else None
        if secret is None:
            found = await self._parts.secrets_of(record)
            if not found:
                return None
            secret = found[0]
            if record.kept:
                self._copies[record.name] = secret
        return ask_for(record, secret)

    def _note(self, compared: Compared) -> None:
        for kind in LISTS:
            found = getattr(compared, kind)
            self._metrics.inventory_differs(kind, len(found))
            if found:
                shown = ", ".join(f"{one.address} {one.service_name} {one.reason}" for one in found[:20])
                _log.warning("inventory differs", kind=kind, count=len(found), addresses=shown)
        if compared.conflict:
            self._copies.clear()  # a secret may have been replaced meanwhile
        if not compared.counted:
            _log.warning("inventory does not count: no secret of ours opens an address of this cluster")
        self._freeze(compared.frozen)

    def _freeze(self, frozen: bool) -> None:
        self._metrics.frozen(frozen)
        if frozen and not self._frozen:
            _log.error("another operator speaks for this cluster id; nothing is released", epoch=self._epoch)
        was, self._frozen = self._frozen, frozen
        if was and not frozen:
            _log.info("no other operator is heard any more; what is due is released")
            self.thawed()


def _nothing() -> None:
    """Nobody waits."""
