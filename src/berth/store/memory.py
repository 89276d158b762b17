"""What the ledger remembers of its pools: one Space each, so that the next free address costs the same in
an empty and in a nearly full zone. It is a picture, not the truth: under the pool's lock it is compared
with the pool's revision, and what other replicas and commands did since is read from the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from berth.errors import Taken
from berth.leasing.decide import Grant, Refusal, decide
from berth.leasing.model import Claim, Pool, Quota, Reason
from berth.leasing.space import Space
from berth.leasing.usage import Usage
from berth.net import Block, Family, parse_block
from berth.store.engine import Row, Transaction
from berth.store.requests import family_of
from berth.store.rows import Behind
from berth.store.statement import FEED

NEWCOMER = "(newcomer)"
UNKNOWN = -1
PORTION = 5000


class PoolMemory:
    """Spaces by pool, with the revision each one shows."""

    def __init__(self) -> None:
        self.spaces: dict[str, Space] = {}
        self.revisions: dict[str, int] = {}
        self.epoch = 0  # grows when spaces are replaced: what was taken in the old ones may be missing

    # What the pools are

    def configure(self, pools: Mapping[str, Pool]) -> list[str]:
        """Take the pools' new shapes; returns those that changed. A pool that left the configuration stays,
        without ranges: what is held there is still held."""
        for key in self.spaces.keys() - pools.keys():
            self.spaces[key].edit(Pool(key))
        changed = []
        for key, pool in pools.items():
            if key not in self.spaces:
                self.spaces[key] = Space(pool)
                self.revisions[key] = UNKNOWN
            elif self.spaces[key].pool != pool:
                self.spaces[key].edit(pool)
            else:
                continue
            changed.append(key)
        return changed

    def meet(self, keys: Iterable[str]) -> None:
        """Pools that a command has added: without ranges, but what is held there is held."""
        for key in keys:
            if key not in self.spaces:
                self.spaces[key] = Space(Pool(key))
                self.revisions[key] = UNKNOWN

    def usage(self) -> dict[str, Usage]:
        return {key: space.usage() for key, space in self.spaces.items()}

    # What is taken

    async def load(self, tx: Transaction, only: Iterable[str] | None = None) -> None:
        """Read everything that is held. Other zones' addresses count too: a prefix may have moved."""
        revisions = {row[0]: row[1] for row in await tx.rows("SELECT key, revision FROM pools")}
        held = await tx.rows("SELECT address, pool FROM addresses")
        fresh = {key: Space(self.spaces[key].pool) for key in (self.spaces if only is None else only)}
        for at, (address, pool) in enumerate(held, 1):
            adopt_everywhere(fresh, parse_block(address), pool)
            if at % PORTION == 0:
                await asyncio.sleep(0)  # a million of them take seconds, and requests go on meanwhile
        self.epoch += 1
        for key, space in fresh.items():
            if space.pool != self.spaces[key].pool:  # a reload came in between
                space.edit(self.spaces[key].pool)
            self.spaces[key] = space
            self.revisions[key] = revisions.get(key, UNKNOWN)

    async def catch_up(self, tx: Transaction, revisions: Mapping[str, int]) -> None:
        """Bring the spaces of locked pools to what the database holds."""
        for key, revision in revisions.items():
            if self.revisions.get(key, UNKNOWN) != revision and key in self.spaces:
                await self._catch_up(tx, key, revision)

    async def _catch_up(self, tx: Transaction, key: str, revision: int) -> None:
        since = self.revisions.get(key, UNKNOWN)
        found = [] if since == UNKNOWN or revision < since else await tx.rows(FEED, key, since)
        if not self.follow(Behind(key, since), revision, found):
            await self.load(tx, [key])

    def behind(self, revisions: Mapping[str, int]) -> Behind:
        """The pool whose changes are worth asking for together with other things, if it is one alone."""
        late = [
            Behind(key, since)
            for key, revision in revisions.items()
            if UNKNOWN < (since := self.revisions.get(key, UNKNOWN)) < revision
        ]
        return late[0] if len(late) == 1 else Behind()

    def follow(self, behind: Behind, revision: int, changes: Sequence[Row]) -> bool:
        """Take over how a locked pool changed; False if these changes do not lead from what is here to its
        revision: that is unknown, restored or was read anew meanwhile, or part of the way is pruned.
        """
        moved = self.revisions[behind.pool] != behind.since
        if moved or not changes or changes[0][2] > behind.since + 1:
            return False
        for _, effect, _, address in changes:
            self.apply(behind.pool, address, effect)
        self.revisions[behind.pool] = revision
        return True

    def apply(self, key: str, address: str, effect: int) -> None:
        if effect > 0:
            self.spaces[key].adopt(parse_block(address), address)
        else:
            self.freed(address)

    def rewind(self, revisions: Mapping[str, int]) -> None:
        """What happened since these revisions is not certain: read it from the history again, which does no
        harm to what memory has right.
        """
        for key, revision in revisions.items():
            self.revisions[key] = min(revision, self.revisions.get(key, UNKNOWN))

    def forget(self, keys: Iterable[str]) -> None:
        """Something did not fit: read these pools anew next time."""
        for key in keys:
            self.revisions[key] = UNKNOWN

    def committed(self, revisions: Mapping[str, int], epoch: int) -> None:
        """The spaces already show what was committed up to these revisions."""
        if epoch != self.epoch:
            return
        for key, revision in revisions.items():
            if self.revisions[key] != UNKNOWN:
                self.revisions[key] = max(revision, self.revisions[key])

    # What is free

    def grant(self, key: str, address: str | None, quota: Quota | None) -> str | Refusal:
        """An address that nobody holds, this one or the next free, taken in memory; or why not."""
        pin = None if address is None else parse_block(address)
        claim = Claim(NEWCOMER, family=Family(family_of(key)), pin=pin, quota=quota)
        decision = decide(claim, [self.spaces[key]])
        if isinstance(decision, Grant):
            found = decision.block.address
            # In memory an address is its own holder: any number of entries share it.
            decision._replace(holder=found).take()
            return found
        assert isinstance(decision, Refusal), "a newcomer has nothing to keep"
        if pin is not None and decision.reason is Reason.PIN_TAKEN:
            # The database says nobody has it: the picture is wrong, not the request.
            raise Taken(pin)
        if decision.reason is Reason.FAMILY_ABSENT:
            # The zone has prefixes, but all of them are excluded: to whoever asks it is full.
            return replace(decision, reason=Reason.POOL_EXHAUSTED)
        return decision

    def freed(self, address: str) -> None:
        block: Block = parse_block(address)
        for space in self.spaces.values():
            space.release(block)


def adopt_everywhere(spaces: Mapping[str, Space], block: Block, pool: str) -> None:
    """An address counts in its own pool, and in any other that its prefix has moved to."""
    for key, space in spaces.items():
        if key == pool or (family_of(key) == block.family and space.contains(block)):
            space.adopt(block, block.address)
