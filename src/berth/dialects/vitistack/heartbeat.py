"""The leader's heartbeat: all addresses that live Services list, and beside them those that wait for their
release, told to the IPAM-API under an epoch of this process; and between two such reports every few seconds
only that it is still there. What the ledger lost
comes back that way; and as long as two operators speak for one cluster id, one of them is a copy, so the
IPAM-API releases nothing of it. After a crash a successor looks like one, until the heartbeats are missed.

Nothing is released before the first report was heard and counted: a copy is noticed before it can do harm,
and one that lists nothing by what it is about to release. Upstream's IPAM-API has no such call; then there is
nothing to wait for.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from berth import log
from berth.central.client import AddressCall, ApiClient, Compared, Heartbeat, Inventory
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
UNPROVEN = "no secret of ours opens an address of this cluster: nothing is released"
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
        self._asks: list[AddressCall] = []  # of the last report
        self._proofs: list[AddressCall] = []
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
            self._cause, self.failure = "", None
            if compared.counted or not (self._asks or self._proofs):
                self.heard = True
            elif not self.heard:  # of what is ours, one secret of ours would open something
                self.failure = ApiRefused(409, UNPROVEN, "NoMatch")
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
            held = self._held()
            self._asks = await self._told(held)
            self._proofs = await self._told(self._going(held, await self._parts.places.cluster_id()))
        asks, proofs = self._asks[:MOST], self._proofs[: max(0, MOST - len(self._asks))]
        self._sequence += 1
        beat = max(1, round(self._seconds))
        cluster_id = await self._parts.places.cluster_id()
        if len(self._asks) > MOST:
            _log.error("inventory is too long, its end is not told", addresses=len(self._asks), most=MOST)
        alive_ms = round(self._alive_seconds * 1000) if self._beats else 0
        told = (tuple(asks), beat, leaving, alive_ms, tuple(proofs))
        return await self._api.report(Inventory(cluster_id, self._epoch, self._sequence, *told))

    async def _told(self, records: list[Record]) -> list[AddressCall]:
        asks = []
        for at, record in enumerate(records, 1):
            asks += await self._ask(record)
            if at % PORTION == 0:
                await asyncio.sleep(0)
        return asks

    def _held(self) -> list[Record]:
        """What its Service lists now, and was confirmed."""
        return [
            record
            for record in self._filed
            if record.confirmed and not record.released and not record.replaced and self.is_listed(record)
        ]

    def _going(self, held: list[Record], cluster_id: str) -> list[Record]:
        """Ours all the same, whatever becomes of it: it proves who speaks."""
        now, told = time.time(), {record.name for record in held}
        there = {record.name: record for record in self._filed if record.confirmed and not record.released}
        self._copies = {name: secret for name, secret in self._copies.items() if name in there}
        return [
            record
            for record in there.values()
            if record.name not in told
            and record.who.cluster_id == cluster_id
            and not record.is_under_way(now)  # nobody knows yet whose the address is
        ]

    def is_listed(self, record: Record) -> bool:
        listing = self._parts.neighbours.listing(record.address)
        return any(one["metadata"]["uid"] == record.uid for one in listing)

    async def _ask(self, record: Record) -> list[AddressCall]:
        """One; two while its secret is being replaced; none if nothing opens it."""
        secret = self._copies.get(record.name) if record.kept and not record.replaced else None
        if secret is not None:
            return [ask_for(record, secret)]
        found = (await self._parts.secrets_of(record))[: 2 if record.replaced else 1]
        if found and record.kept and not record.replaced:
            self._copies[record.name] = found[0]
        return [ask_for(record, one) for one in found]

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
