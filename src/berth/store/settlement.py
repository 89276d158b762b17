"""One group of wishes, settled in one transaction: read what they concern, decide each in turn on that
picture (so a later wish sees what an earlier one got), then write the differences. Everything between
reading and writing is plain computation; nothing is written for a wish that changes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from berth.leasing import holders
from berth.leasing.decide import Refusal
from berth.leasing.holders import Entry, Identity
from berth.leasing.model import Quota, Reason
from berth.secret import Pepper, Seal, Secret
from berth.store import operators, rows, statement
from berth.store.engine import Changes, Locked, Row, Transaction
from berth.store.memory import Memory
from berth.store.requests import Answer, Granted, Register, Release, Released, Wish
from berth.store.rows import AddressRow, Behind, Event, HolderRow

NO_MATCH = Refusal(Reason.NO_MATCH)


def takes_away(wish: Wish) -> bool:
    """Whether it could take an address, or its secret, from whoever has it now."""
    return isinstance(wish, Release) or wish.new_secret is not None


@dataclass(frozen=True, slots=True)
class Rules:
    """What does not change from wish to wish."""

    pepper: Pepper
    pending_ms: int = 120_000
    mirror: bool = False  # whether changes also go to the outbox
    quota: int = 0  # addresses per cluster and pool; 0 = no limit


@dataclass(slots=True)
class Book:
    """The picture of one group, and what it changes."""

    locked: Locked
    rules: Rules
    memory: Memory
    epoch: int
    stored: dict[str, AddressRow] = field(default_factory=dict)
    entries: dict[tuple[str, str], HolderRow] = field(default_factory=dict)
    by_identity: dict[str, set[str]] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    added: dict[str, AddressRow] = field(default_factory=dict)
    resealed: dict[str, AddressRow] = field(default_factory=dict)
    written: dict[tuple[str, str], HolderRow] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    taken: list[tuple[str, str]] = field(default_factory=list)
    fitting: dict[tuple[Secret, Seal], bool] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()  # clusters of which nothing may be taken away now

    @property
    def now(self) -> int:
        return self.locked.now

    # Reading

    async def read(self, tx: Transaction, wishes: Sequence[Wish], behind: Behind) -> Sequence[Row]:
        """What the wishes concern; returns how the pool that memory is behind with has changed."""
        identities = list({wish.entry.identity.key for wish in wishes})
        named = list({wish.address for wish in wishes if wish.address})
        changes, pairs = await rows.concerned(tx, identities, named, behind)
        for address, holder in pairs:
            self.stored[address.address] = address
            if holder is not None:
                self._remember(holder)
        await self._read_for_replacement(tx, wishes)
        taking = {wish.entry.identity.cluster_id for wish in wishes if takes_away(wish)}
        if taking:
            self.frozen = await operators.frozen(tx, taking, self.now)
        if self.rules.quota:
            await self._read_counts(tx, {wish.entry.identity.cluster_id for wish in wishes})
        return changes

    async def _read_for_replacement(self, tx: Transaction, wishes: Sequence[Wish]) -> None:
        """Who replaces a secret must be alone, so there the other holders matter too: on every address that
        it is on, or comes to by another wish of the group.
        """
        changing = [wish for wish in wishes if isinstance(wish, Register) and wish.new_secret]
        which = {wish.address for wish in wishes if wish.address} if changing else set()
        which |= {address for wish in changing for address in self._addresses_of(wish)}
        if which:
            for row in await rows.holders_by(tx, "address", list(which)):
                self._remember(row)

    async def _read_counts(self, tx: Transaction, clusters: Iterable[str]) -> None:
        count = "SELECT cluster_id, pool, count(DISTINCT address) FROM holders"
        sql = f"{count} WHERE cluster_id = ANY($1) GROUP BY 1, 2"
        self.counts = {(row[0], row[1]): row[2] for row in await tx.rows(sql, list(clusters))}

    def _remember(self, row: HolderRow) -> None:
        key = row.entry.identity.key
        self.entries[row.address, key] = row
        self.by_identity.setdefault(key, set()).add(row.address)

    def _addresses_of(self, wish: Wish) -> set[str]:
        return self.by_identity.get(wish.entry.identity.key, set())

    # Deciding

    def settle(self, wish: Wish) -> Answer:
        if isinstance(wish, Release):
            return self._release(wish)
        missed = wish.address is None and self._misses(wish)
        answer = self._register(wish)
        return replace(answer, missed=True) if missed and not isinstance(answer, Released) else answer

    def _misses(self, wish: Register) -> bool:
        """Whether the holder has something here that its secret does not open."""
        mine = (self.stored.get(address) for address in self._addresses_of(wish))
        return any(one and one.pool == wish.pool and not self._opens(wish, one) for one in mine)

    def _register(self, wish: Register) -> Answer:
        address = wish.address or self._already_on(wish)
        stored = self.stored.get(address or "")
        if stored is None:
            return self._add(wish, address)
        if stored.pool != wish.pool or not self._opens(wish, stored):
            return wish.otherwise or NO_MATCH
        return self._join(wish, stored)

    def _already_on(self, wish: Register) -> str | None:
        """The address this holder has with this secret, if any; an active one before a retained one."""
        mine = [
            (self.entries[address, wish.entry.identity.key].entry, address)
            for address in self._addresses_of(wish)
        ]
        return holders.preferred(
            (entry, address)
            for entry, address in mine
            if (stored := self.stored.get(address)) and stored.pool == wish.pool and self._opens(wish, stored)
        )

    def _opens(self, wish: Register, stored: AddressRow) -> bool:
        """With the secret; or, so that a replacement can be repeated, with the one that already replaced
        it.
        """
        if self._fits(wish.secret, stored):
            return True
        return wish.new_secret is not None and self._fits(wish.new_secret, stored)

    def _fits(self, secret: Secret, stored: AddressRow) -> bool:
        """Found out once: a group may ask the same for every address of a holder, many times."""
        key = (secret, stored.seal)
        if key not in self.fitting:
            self.fitting[key] = self.rules.pepper.opens(secret, stored.seal)
        return self.fitting[key]

    def _add(self, wish: Register, named: str | None) -> Answer:
        """An address that nobody holds, the one that is named or the next free, gets its first holder."""
        if wish.otherwise or wish.new_secret:
            return wish.otherwise or NO_MATCH
        key = (wish.entry.identity.cluster_id, wish.pool)
        used = self.counts.get(key, 0)
        address = self.memory.grant(
            wish.pool, named, Quota(self.rules.quota, used) if self.rules.quota else None
        )
        if isinstance(address, Refusal):
            return address
        self.taken.append((wish.pool, address))
        row = AddressRow(address, wish.pool, str(uuid.uuid4()), self.rules.pepper.seal(wish.secret), self.now)
        self.stored[address] = self.added[address] = row
        entry = self._after(None, wish)
        self._write(
            address, wish.pool, entry, Event(self.now, wish.pool, address, "registered", 1, entry.identity)
        )
        self.counts[key] = used + 1
        return Granted(address, fresh=True)

    def _join(self, wish: Register, stored: AddressRow) -> Answer:
        """A holder comes to, or stays on, an address whose secret it knows."""
        if wish.new_secret is not None and not self.rules.pepper.opens(wish.new_secret, stored.seal):
            refusal = self._replace_secret(wish, stored, wish.new_secret)
            if refusal:
                return refusal
        elif self.rules.pepper.outdated(stored.seal):
            self._reseal(stored, wish.new_secret or wish.secret)
        old = self.entries.get((stored.address, wish.entry.identity.key))
        if wish.only_marked_by and (old is None or old.entry.marked_by != wish.only_marked_by):
            return Granted(stored.address, fresh=False)
        entry = self._after(old.entry if old else None, wish)
        if old is None or entry != old.entry:
            event = self._joined_event(old.entry if old else None, entry)
            self._write(
                stored.address,
                stored.pool,
                entry,
                Event(self.now, stored.pool, stored.address, event, 0, entry.identity),
            )
        return Granted(stored.address, fresh=False)

    def _replace_secret(self, wish: Register, stored: AddressRow, secret: Secret) -> Refusal | None:
        there = [row.entry for (address, _), row in self.entries.items() if address == stored.address]
        reason = holders.replacement_refusal(there, wish.entry.identity, self.now)
        if reason or wish.entry.identity.cluster_id in self.frozen:
            return Refusal(reason or Reason.CLUSTER_FROZEN)
        self._reseal(stored, secret)
        self._end_for_good(there, stored, wish.entry.identity)
        who = wish.entry.identity
        self.events.append(Event(self.now, stored.pool, stored.address, "secret replaced", 0, who))
        return None

    def _end_for_good(self, there: Iterable[Entry], stored: AddressRow, who: Identity) -> None:
        """Those whose time is over and who do not know the new secret: nobody's undo brings them back."""
        for entry in there:
            if entry.identity != who and entry.marked_by:
                over = replace(entry, marked_by="", expires_before=None)
                row = HolderRow(stored.address, stored.pool, over)
                self._remember(row)
                self.written[stored.address, entry.identity.key] = row

    def _reseal(self, stored: AddressRow, secret: Secret) -> None:
        sealed = replace(stored, seal=self.rules.pepper.seal(secret))
        self.stored[stored.address] = self.resealed[stored.address] = sealed

    def _after(self, old: Entry | None, wish: Register) -> Entry:
        if wish.pending:
            return holders.reserved(old, wish.entry, self.locked.begins + self.rules.pending_ms)
        return holders.joined(old, wish.entry)

    def _joined_event(self, old: Entry | None, entry: Entry) -> str:
        if old is None:
            return "joined"
        return "updated" if old.active or entry.pending else "confirmed" if old.pending else "recalled"

    def _release(self, wish: Release) -> Answer:
        stored = self.stored.get(wish.address or "")
        opens = self.rules.pepper.opens(wish.secret, stored.seal if stored else None)
        if stored is None or stored.pool != wish.pool or not opens:
            return wish.otherwise or NO_MATCH
        old = self.entries.get((stored.address, wish.entry.identity.key))
        if old is None or (wish.entry.uid and old.entry.uid and wish.entry.uid != old.entry.uid):
            return Refusal(Reason.NOT_HOLDER)
        if wish.entry.identity.cluster_id in self.frozen:
            return Refusal(Reason.CLUSTER_FROZEN)
        entry = holders.released(old.entry, wish.entry, self.locked.begins)
        if entry != old.entry:
            event = Event(self.now, stored.pool, stored.address, "released", 0, entry.identity)
            self._write(stored.address, stored.pool, entry, event)
        return Released(stored.address)

    def _write(self, address: str, pool: str, entry: Entry, event: Event) -> None:
        row = HolderRow(address, pool, entry)
        self._remember(row)
        self.written[address, entry.identity.key] = row
        self.events.append(event)

    # Writing

    async def write(self, tx: Transaction) -> dict[str, int]:
        """The differences, in few statements; returns the pools' new revisions."""
        resealed = [self.stored[address] for address in self.resealed if address not in self.added]
        if resealed:
            seals = [(row.address, row.seal.key_id, row.seal.salt, row.seal.digest) for row in resealed]
            await tx.many(statement.RESEAL, seals)
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
