"""Who keeps an address alive: the pure rules of joining, leaving, retention, recall and secret replacement.

An address has one secret and any number of entries, one per holder. An entry without `expires_at` is
active; with one in the future it is retained (or pending: reserved during admission, not confirmed yet);
with one in the past it has lapsed and only waits for the sweep. Times are UTC milliseconds and always come
in from outside.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from berth.leasing.model import Reason

DAY_MS = 24 * 60 * 60 * 1000
RETENTION_DAYS = range(31)
NAME_LIMIT = 512
CONTROL = re.compile(r"[\x00-\x1f]")


def is_name(text: str) -> bool:
    """Whether a part of an identity, or a uid, can be stored."""
    return 0 < len(text) <= NAME_LIMIT and not CONTROL.search(text)


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """The triple that names a holder. All three are free text."""

    service_name: str
    namespace_id: str
    cluster_id: str

    @property
    def key(self) -> str:
        """One short text for the triple."""
        return _key(self.service_name, self.namespace_id, self.cluster_id)


@lru_cache(maxsize=4096)
def _key(*parts: str) -> str:
    """Lengths are hashed too, so that parts never run into each other."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One holder on one address."""

    identity: Identity
    retention_days: int = 0
    deny: bool = False  # deny_external_cleanup: neither ROR nor a cluster release may expire it
    uid: str = ""  # of the object behind the holder, where the client tells it
    expires_at: int | None = None
    pending: bool = False
    marked_by: str = ""  # who set expires_at: service, cluster, ror, cli, silent
    expires_before: int | None = None  # what an undo puts back

    def lives(self, now: int) -> bool:
        return self.expires_at is None or self.expires_at > now

    @property
    def active(self) -> bool:
        return self.expires_at is None


def joined(old: Entry | None, asked: Entry) -> Entry:
    """The entry after a POST: the request's data, expiry cleared. Recall is nothing else."""
    uid = asked.uid or (old.uid if old else "")
    return replace(asked, uid=uid, expires_at=None, pending=False, marked_by="", expires_before=None)


def reserved(old: Entry | None, asked: Entry, until: int) -> Entry:
    """The entry after a POST made during admission: it lapses at `until` unless confirmed.

    An active holder is not touched: its object exists, whatever becomes of this request. A retained one keeps
    the longer of the two times, so that a refused request never shortens retention.
    """
    if old is not None and old.active:
        return old
    kept = old.expires_at if old is not None and old.expires_at is not None else until
    if old is not None and kept > until:
        return old
    return replace(asked, expires_at=until, pending=True, marked_by="", expires_before=None)


def released(old: Entry, asked: Entry, now: int) -> Entry:
    """The entry after its holder's own DELETE: expires after retention, never later than it already would."""
    due = _sooner(old.expires_at, after_retention(asked, now))
    before = old.expires_before if old.marked_by else old.expires_at
    return replace(asked, uid=old.uid, expires_at=due, marked_by="service", expires_before=before)


def after_retention(entry: Entry, now: int) -> int:
    """Never more than the longest there is, whatever an import of an older version has left in a row."""
    return now + min(max(entry.retention_days, 0), RETENTION_DAYS[-1]) * DAY_MS


def marked(old: Entry, by: str, due: int) -> Entry:
    """The entry after somebody else released it: expires when due, never later than it already would."""
    due = _sooner(old.expires_at, due)
    if due == old.expires_at:
        return old
    # What the holder itself set is what an undo puts back, not what others had set before.
    before = old.expires_at if old.marked_by in ("", "service") else old.expires_before
    return replace(old, expires_at=due, marked_by=by, expires_before=before)


def unmarked(old: Entry) -> Entry:
    """The entry as it was before somebody set its expiry."""
    if not old.marked_by:
        return old
    return replace(old, expires_at=old.expires_before, marked_by="", expires_before=None)


def preferred(candidates: Iterable[tuple[Entry, str]]) -> str | None:
    """Which address a holder on several is meant to keep: an active one first, then the one kept longest.

    Equal ones are settled by the address's text, so that every replica gives the same answer.
    """
    best = min(candidates, key=_preference, default=None)
    return best[1] if best else None


def _preference(candidate: tuple[Entry, str]) -> tuple[bool, int, str]:
    entry, address = candidate
    return (not entry.active, -(entry.expires_at or 0), address)


def replacement_refusal(entries: Iterable[Entry], holder: Identity, now: int) -> Reason | None:
    """Why `holder` may not replace the secret; None when it is the single living holder."""
    living = [entry.identity for entry in entries if entry.lives(now)]
    if len(living) > 1:
        return Reason.SEVERAL_HOLDERS
    if living != [holder] and living:
        return Reason.OTHER_HOLDER
    return None


def _sooner(first: int | None, second: int) -> int:
    return second if first is None else min(first, second)
