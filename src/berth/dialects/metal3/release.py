"""What goes when a claim goes: the address objects that were made for it, and what it had in memory only.

Whose an object is, its owner's UID says; a name alone never does, since the next claim may have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from berth import log
from berth.dialects.metal3.claim_api import made_for
from berth.dialects.metal3.leases import block_of
from berth.kube import meta
from berth.kube.meta import Ref

if TYPE_CHECKING:
    from berth.dialects.metal3.claims import PoolClaimHandler

Object = dict[str, Any]
_log = log.get("berth.metal3")


class Returns:
    def __init__(self, book: PoolClaimHandler) -> None:
        self._book = book
        self._flavour = book.flavour
        self._leases = book.leases

    async def withdraw(self, claim: Object) -> bool:
        await self._leases.catch_up(claim)  # what it names may be news to us
        for record in self._leases.of_claim(claim):
            if await self._goes_with(record, claim):
                await self._leases.collect(record)
        await self._withdraw_unseen(claim)
        return True

    async def _goes_with(self, record: Object, claim: Object) -> bool:
        """Made for this claim, or by hand for a claim of this name; not made for an earlier or later one."""
        maker = made_for(self._flavour, record)
        if maker is not None and record["metadata"]["name"] != self._flavour.bound_name(claim):
            return maker == meta.uid(claim)
        if not meta.is_deleting(claim):
            return False
        return maker in (None, meta.uid(claim)) or await self.is_still(claim)

    async def is_still(self, claim: Object) -> bool:
        """By a live read. Named by the claim and made for another UID: the claim was moved here. Or it went,
        and the next one of its name has its address already; of that we may hear before we hear of the claim.
        """
        found = await self._book.live(claim["metadata"]["namespace"], claim["metadata"]["name"])
        return found is not None and meta.uid(found) == meta.uid(claim)

    async def _withdraw_unseen(self, claim: Object) -> None:
        """Blocks taken in memory whose create was never answered: look before letting go."""
        open_pool = self._book.pools.get(self._flavour.pool_key(claim) or "")
        if open_pool is None:
            return
        key, namespace = self._leases.key_of(claim), claim["metadata"]["namespace"]
        seen = {block_of(record) for record in self._leases.of_claim(claim)}
        for block in open_pool.desk.space.leases_of(key):
            if block in seen:
                continue  # its object stays a while, held by someone's finalizer, and the address with it
            record = await self._leases.find(namespace, open_pool.spec.address_name(block))
            is_its = record is not None and self._leases.is_for(record, claim)
            if record is not None and is_its and await self._goes_with(record, claim):
                await self._leases.collect(record)
            open_pool.desk.free(block, key)

    async def clean_up(self, ref: Ref) -> None:
        """The claim is gone: so is what was made for it.

        A deletion that was under way when our finalizer was stored can win: the API server looks for
        finalizers before it deletes, not while. Then nobody is left to release the address but us.
        """
        for record in self._leases.kept.cache.by("holder", f"{ref.kind}/{ref.namespace}/{ref.name}"):
            maker = made_for(self._flavour, record)
            if maker and not self.seems_used(record, maker) and not await self.lives(record, maker):
                _log.info("the claim is gone, its address goes too", address=record["metadata"]["name"])
                await self._leases.collect(record)

    def seems_used(self, record: Object, maker: str) -> bool:
        """From memory: by the claim it was made for or one that names it; or it is not for us to say."""
        key = self._flavour.pool_of_address(record)
        if key is None or self._book.leaves(key):
            return True
        name = self._flavour.claim_of_address(record)
        claim = self._book.cache.get(record["metadata"]["namespace"], name)
        return claim is not None and self._uses(claim, record, maker)

    async def lives(self, record: Object, maker: str) -> bool:
        """The same by a live read of the claim."""
        name = self._flavour.claim_of_address(record)
        claim = await self._book.live(record["metadata"]["namespace"], name)
        return claim is not None and self._uses(claim, record, maker)

    def _uses(self, claim: Object, record: Object, maker: str) -> bool:
        """Made for the claim is not enough once the claim names another: a claim has one address."""
        if not maker:
            return self._leases.is_for(record, claim)
        named = self._flavour.bound_name(claim)
        return named == record["metadata"]["name"] or (meta.uid(claim) == maker and not named)
