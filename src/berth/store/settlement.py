"""One group of requests, settled in one transaction: read what they concern, decide each in turn on that
picture (so a later request sees what an earlier one got), then write the differences. Everything between
reading and writing is plain computation; nothing is written for a request that changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from berth.leasing import holders
from berth.leasing.decide import Refusal
from berth.leasing.holders import Entry
from berth.leasing.model import Quota, Reason
from berth.secret import Pepper, Secret, SecretHash
from berth.store import operators, rows, statement
from berth.store.engine import Changes, Locked, Transaction
from berth.store.memory import PoolMemory
from berth.store.requests import (
    Granted,
    LedgerAnswer,
    LedgerRequest,
    RegisterRequest,
    Released,
    ReleaseRequest,
)
from berth.store.rows import AddressRow, HistoryRow, HolderRow

NO_MATCH = Refusal(Reason.NO_MATCH)


def takes_away(request: LedgerRequest) -> bool:
    """Whether it could take an address, or its secret, from whoever has it now."""
    return isinstance(request, ReleaseRequest) or request.new_secret is not None


@dataclass(frozen=True, slots=True)
class LedgerRules:
    """What does not change from request to request."""

    pepper: Pepper
    pending_ms: int = 120_000
    mirror: bool = False  # whether changes also go to the outbox
    quota: int = 0  # addresses per cluster and pool; 0 = no limit


@dataclass(slots=True)
class Settlement:
    """The picture of one group, and what it changes."""

    locked: Locked
    rules: LedgerRules
    memory: PoolMemory
    epoch: int = 0  # of the memory that the group is decided on
    stored: dict[str, AddressRow] = field(default_factory=dict)
    entries: dict[tuple[str, str], HolderRow] = field(default_factory=dict)
    by_identity: dict[str, set[str]] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    added: dict[str, AddressRow] = field(default_factory=dict)
    rehashed: dict[str, AddressRow] = field(default_factory=dict)
    written: dict[tuple[str, str], HolderRow] = field(default_factory=dict)
    events: list[HistoryRow] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)  # in memory, for what is added
    fitting: dict[tuple[Secret, SecretHash], bool] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()  # clusters of which nothing may be taken away now

    @property
    def now(self) -> int:
        return self.locked.now

    # Reading

    async def read(self, tx: Transaction, requests: Sequence[LedgerRequest]) -> None:
        """What the requests concern, and what others did in these pools since memory last looked."""
        behind = self.memory.behind(self.locked.revisions)
        identities = list({request.entry.identity.key for request in requests})
        named = list({request.address for request in requests if request.address})
        changes, pairs = await rows.concerned(tx, identities, named, behind)
        for address, holder in pairs:
            self.stored[address.address] = address
            if holder is not None:
                self._remember(holder)
        await self._read_for_replacement(tx, requests)
        taking = {request.entry.identity.cluster_id for request in requests if takes_away(request)}
        if taking:
            self.frozen = await operators.frozen(tx, taking, self.now)
        if self.rules.quota:
            count = "SELECT cluster_id, pool, count(DISTINCT address) FROM holders"
            clusters = list({request.entry.identity.cluster_id for request in requests})
            found = await tx.rows(f"{count} WHERE cluster_id = ANY($1) GROUP BY 1, 2", clusters)
            self.counts = {(row[0], row[1]): row[2] for row in found}
        if behind.pool:
            self.memory.follow(behind, self.locked.revisions[behind.pool], changes)
        await self.memory.catch_up(tx, self.locked.revisions)
        self.epoch = self.memory.epoch

    async def _read_for_replacement(self, tx: Transaction, requests: Sequence[LedgerRequest]) -> None:
        """Who replaces a secret must be alone, so there the other holders matter too: on every address that
        it is on, or comes to by another request of the group.
        """
        changing = [
            request for request in requests if isinstance(request, RegisterRequest) and request.new_secret
        ]
        which = {request.address for request in requests if request.address} if changing else set()
        which |= {address for request in changing for address in self._addresses_of(request)}
        if which:
            for row in await rows.holders_by(tx, "address", list(which)):
                self._remember(row)

    def _remember(self, row: HolderRow) -> None:
        key = row.entry.identity.key
        self.entries[row.address, key] = row
        self.by_identity.setdefault(key, set()).add(row.address)

    def _addresses_of(self, request: LedgerRequest) -> set[str]:
        return self.by_identity.get(request.entry.identity.key, set())

    # Deciding

    def settle(self, request: LedgerRequest) -> LedgerAnswer:
        if isinstance(request, ReleaseRequest):
            return self._release(request)
        missed = request.address is None and self._misses(request)
        answer = self._register(request)
        return replace(answer, missed=True) if missed and not isinstance(answer, Released) else answer

    def _misses(self, request: RegisterRequest) -> bool:
        """Whether the holder has something here that its secret does not open."""
        mine = (self.stored.get(address) for address in self._addresses_of(request))
        return any(one and one.pool == request.pool and not self._opens(request, one) for one in mine)

    def _register(self, request: RegisterRequest) -> LedgerAnswer:
        address = request.address or self._already_on(request)
        stored = self.stored.get(address or "")
        if stored is None:
            return self._add(request, address)
        if stored.pool != request.pool or not self._opens(request, stored):
            return request.otherwise or NO_MATCH
        return self._join(request, stored)

    def _already_on(self, request: RegisterRequest) -> str | None:
        """The address this holder has with this secret, if any; an active one before a retained one."""
        mine = [
            (self.entries[address, request.entry.identity.key].entry, address)
            for address in self._addresses_of(request)
        ]
        return holders.preferred(
            (entry, address)
            for entry, address in mine
            if (stored := self.stored.get(address))
            and stored.pool == request.pool
            and self._opens(request, stored)
        )

    def _opens(self, request: RegisterRequest, stored: AddressRow) -> bool:
        """With the secret; or, so that a replacement can be repeated, with the one that already replaced
        it.
        """
        if self._fits(request.secret, stored):
            return True
        return request.new_secret is not None and self._fits(request.new_secret, stored)

    def _fits(self, secret: Secret, stored: AddressRow) -> bool:
        """Found out once: a group may ask the same for every address of a holder, many times."""
        key = (secret, stored.secret_hash)
        if key not in self.fitting:
            self.fitting[key] = self.rules.pepper.verifies(secret, stored.secret_hash)
        return self.fitting[key]

    def _add(self, request: RegisterRequest, named: str | None) -> LedgerAnswer:
        """An address that nobody holds, the one that is named or the next free, gets its first holder."""
        if request.otherwise or request.new_secret:
            return request.otherwise or NO_MATCH
        key = (request.entry.identity.cluster_id, request.pool)
        used = self.counts.get(key, 0)
        address = self.memory.grant(
            request.pool, named, Quota(self.rules.quota, used) if self.rules.quota else None
        )
        if isinstance(address, Refusal):
            return address
        self.taken.append(address)
        row = AddressRow(
            address, request.pool, str(uuid.uuid4()), self.rules.pepper.hash(request.secret), self.now
        )
        self.stored[address] = self.added[address] = row
        entry = self._after(None, request)
        self._write(
            address,
            request.pool,
            entry,
            HistoryRow(self.now, request.pool, address, "registered", 1, entry.identity),
        )
        self.counts[key] = used + 1
        return Granted(address, fresh=True)

    def _join(self, request: RegisterRequest, stored: AddressRow) -> LedgerAnswer:
        """A holder comes to, or stays on, an address whose secret it knows."""
        if request.new_secret is not None and not self.rules.pepper.verifies(
            request.new_secret, stored.secret_hash
        ):
            refusal = self._replace_secret(request, stored, request.new_secret)
            if refusal:
                return refusal
        elif self.rules.pepper.outdated(stored.secret_hash):
            self._rehash(stored, request.new_secret or request.secret)
        old = self.entries.get((stored.address, request.entry.identity.key))
        if request.only_marked_by and (old is None or old.entry.marked_by != request.only_marked_by):
            return Granted(stored.address, fresh=False)
        entry = self._after(old.entry if old else None, request)
        if old is None or entry != old.entry:
            if old is None:
                event = "joined"
            elif old.entry.active or entry.pending:
                event = "updated"
            else:
                event = "confirmed" if old.entry.pending else "recalled"
            self._write(
                stored.address,
                stored.pool,
                entry,
                HistoryRow(self.now, stored.pool, stored.address, event, 0, entry.identity),
            )
        return Granted(stored.address, fresh=False)

    def _replace_secret(self, request: RegisterRequest, stored: AddressRow, secret: Secret) -> Refusal | None:
        there = [row.entry for (address, _), row in self.entries.items() if address == stored.address]
        reason = holders.replacement_refusal(there, request.entry.identity, self.now)
        if reason or request.entry.identity.cluster_id in self.frozen:
            return Refusal(reason or Reason.CLUSTER_FROZEN)
        self._rehash(stored, secret)
        who = request.entry.identity
        for entry in there:
            # Whose time is over and who does not know the new secret: nobody's undo brings it back.
            if entry.identity != who and entry.marked_by:
                over = replace(entry, marked_by="", expires_before=None)
                row = HolderRow(stored.address, stored.pool, over)
                self._remember(row)
                self.written[stored.address, entry.identity.key] = row
        self.events.append(HistoryRow(self.now, stored.pool, stored.address, "secret replaced", 0, who))
        return None

    def _rehash(self, stored: AddressRow, secret: Secret) -> None:
        hashed = replace(stored, secret_hash=self.rules.pepper.hash(secret))
        self.stored[stored.address] = self.rehashed[stored.address] = hashed

    def _after(self, old: Entry | None, request: RegisterRequest) -> Entry:
        if request.pending:
            return holders.reserved(old, request.entry, self.locked.begins + self.rules.pending_ms)
        return holders.joined(old, request.entry)

    def _release(self, request: ReleaseRequest) -> LedgerAnswer:
        stored = self.stored.get(request.address or "")
        opens = self.rules.pepper.verifies(request.secret, stored.secret_hash if stored else None)
        if stored is None or stored.pool != request.pool or not opens:
            return request.otherwise or NO_MATCH
        old = self.entries.get((stored.address, request.entry.identity.key))
        if old is None or (request.entry.uid and old.entry.uid and request.entry.uid != old.entry.uid):
            return Refusal(Reason.NOT_HOLDER)
        if request.entry.identity.cluster_id in self.frozen:
            return Refusal(Reason.CLUSTER_FROZEN)
        entry = holders.released(old.entry, request.entry, self.locked.begins)
        if entry != old.entry:
            event = HistoryRow(self.now, stored.pool, stored.address, "released", 0, entry.identity)
            self._write(stored.address, stored.pool, entry, event)
        return Released(stored.address)

    def _write(self, address: str, pool: str, entry: Entry, event: HistoryRow) -> None:
        row = HolderRow(address, pool, entry)
        self._remember(row)
        self.written[address, entry.identity.key] = row
        self.events.append(event)

    # Writing

    async def write(self, tx: Transaction) -> dict[str, int]:
        """The differences, in few statements; returns the pools' new revisions."""
        rehashed = [self.stored[address] for address in self.rehashed if address not in self.added]
        if rehashed:
            hashes = [
                (row.address, row.secret_hash.key_id, row.secret_hash.salt, row.secret_hash.digest)
                for row in rehashed
            ]
            await tx.many(statement.REPLACE_HASH, hashes)
        if self.rules.mirror and self.added:
            push = [(self.now, "push", row.address, row.pool, row.uid) for row in self.added.values()]
            await tx.many(statement.INSERT_OUTBOX, push)
        changes = Changes(
            [self.stored[address].columns() for address in self.added],
            [row.columns() for row in self.written.values()],
            [event.columns() for event in self.events],
            sorted({row.pool for row in self.added.values()}),
        )
        return await tx.write(changes) if self.events else {}

    def free_taken(self) -> None:
        """Give back in memory what was taken for rows that are not there."""
        for address in self.taken:
            self.memory.freed(address)
        self.taken.clear()
