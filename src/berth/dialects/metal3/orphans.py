"""Address objects that no claim will ever release: what berth.dialects.orphans collects here.

An address object whose claim is gone should not exist: the claim's finalizer holds the claim until its
address is back. Upstream leaves some behind, and so does whoever removes finalizers by hand. One made by
hand, for a claim that is still to come, has no owner and is never collected; one that an operator made is its
pool's too, which tells them apart when garbage collection has struck off the claim.

Beside the word for a whole pool, `kubectl delete ipaddress` on an object without a claim is a person's word
that this one may go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from berth import log
from berth.control.cache import Cache
from berth.control.events import Recorder
from berth.dialects.metal3.claim_api import made_for
from berth.dialects.metal3.claims import PoolClaimHandler
from berth.dialects.metal3.pools import IPPools
from berth.dialects.orphans import Suspect, consent
from berth.errors import KubeError
from berth.kube import meta
from berth.kube.meta import Ref

Object = dict[str, Any]
_log = log.get("berth.metal3.janitor")
OBSTACLES_SECONDS = 5.0
AT_A_STRETCH = 500


@dataclass(frozen=True, slots=True)
class LostAddress(Suspect):
    book: PoolClaimHandler
    maker: str  # UID of the claim it was made for; empty for one made by hand


class LostAddresses:
    """Address objects without a claim; see berth.dialects.orphans."""

    def __init__(
        self, books: tuple[PoolClaimHandler, ...], pools: IPPools, pool_cache: Cache, events: Recorder
    ) -> None:
        self._books = books
        self._pools = pools
        self._pool_cache = pool_cache
        self._events = events
        self._makers: dict[str, str] = {}  # owners that garbage collection struck off
        for book in books:
            book.leases.kept.cache.listen(self._listener(book))

    async def suspects(self) -> AsyncIterator[LostAddress]:
        for book in self._books:
            for count, record in enumerate(book.leases.kept.cache):
                if count % AT_A_STRETCH == 0:
                    await asyncio.sleep(0)  # claims do not wait for us
                maker = made_for(book.flavour, record) or self._makers.get(meta.uid(record), "")
                told = bool(maker) or meta.is_deleting(record) or _was_made_by_an_operator(book, record)
                if told and not book.returns.seems_used(record, maker):
                    yield LostAddress(record, book.flavour.pool_of_address(record) or "", book, maker)

    def count(self, pool: str) -> int:
        return self._pools.count(pool)

    def count_all(self) -> None:
        """Pools are whole clusters' or tenants': each has its own brake."""

    def pool(self, name: str) -> Object | None:
        namespace, _, name = name.partition("/")
        return self._pool_cache.get(namespace, name)

    async def is_alive(self, suspect: LostAddress) -> bool:
        return await suspect.book.returns.lives(suspect.record, suspect.maker)

    async def collect(self, suspect: LostAddress) -> bool:
        record = suspect.record
        await suspect.book.leases.collect(record)
        _log.info(
            "collected an address without a claim", address=record["metadata"]["name"], pool=suspect.pool
        )
        text = f"{record['spec']['address']} had lost its claim; it is available again"
        self._events.event(_pool_ref(suspect.pool), "Normal", "AddressCollected", text)
        return True

    def held_back(self, pool: str, suspects: list[LostAddress], word: str) -> None:
        names = ", ".join(suspect.record["metadata"]["name"] for suspect in suspects[:5])
        ref = _pool_ref(pool)
        text = (
            f"{len(suspects)} addresses seem to have lost their claims ({names}, …); so many are not "
            "collected unasked: look, and delete those IPAddresses that may go; or, "
            + consent(f"-n {ref.namespace} ippool {ref.name}", word)
        )
        _log.warning("many addresses without a claim, none collected", pool=pool, count=len(suspects))
        self._events.event(ref, "Warning", "TooManyWithoutClaim", text)

    async def watch_obstacles(self, every_seconds: float) -> None:
        """An object in our way may go before our watch has shown it; nobody would tell us of that."""
        while True:
            await asyncio.sleep(min(OBSTACLES_SECONDS, every_seconds))
            for obstacle in self._pools.obstacles():
                known = obstacle.leases.kept.cache.get(obstacle.namespace, obstacle.name)
                try:
                    if (
                        known is None
                        and await obstacle.leases.find(obstacle.namespace, obstacle.name) is None
                    ):
                        self._pools.cleared(obstacle.key)
                except KubeError as error:
                    _log.debug("obstacle not looked at", error=str(error))

    def _listener(self, book: PoolClaimHandler) -> Callable[[Object | None, Object | None], None]:
        """Garbage collection strikes a dead claim off the owners, and with it what tells whose it was."""

        def changed(old: Object | None, new: Object | None) -> None:
            if old is None:
                return
            if new is None:
                self._makers.pop(meta.uid(old), None)
            elif (maker := made_for(book.flavour, old)) and not made_for(book.flavour, new):
                self._makers[meta.uid(new)] = maker

        return changed


def _was_made_by_an_operator(book: PoolClaimHandler, record: Object) -> bool:
    is_held = meta.has_finalizer(record, book.flavour.address_finalizer)
    return is_held and any(owner.get("kind") == "IPPool" for owner in meta.owners(record))


def _pool_ref(key: str) -> Ref:
    namespace, _, name = key.partition("/")
    return Ref("IPPool", namespace, name)
