"""The ledger of one range: one conditional write of one object for all who wait; storage refuses an overlap.

    grant, release, …  ──► waiting ──► whoever gets the lock first plans and writes for all
                                       │ the version changed since? ──► read, plan again
                                       └ an edit that no longer fits is refused alone; the others go on

A page is written only over the very page it was made from, so a block that is free on that page is free.
Memory (`desk.space`), leaders and locks only save work: with three operators and no election each of them
loses races and none of them loses an address. Why each step is safe: docs/decisions/0007-kubipam-ledger.md.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from berth import log
from berth.control.cache import Cache
from berth.dialects.claim import NotStored
from berth.dialects.kubipam.allocations import Draft, Page, read_page
from berth.dialects.kubipam.kinds import RANGE, READY
from berth.errors import Conflict, InvalidText, KubeError, NotFound, Unreachable
from berth.kube import meta, patch
from berth.kube.client import Client, PatchKind
from berth.net import Block, Family

Object = dict[str, Any]
Edit = Callable[[Draft], None]
_log = log.get("berth.kubipam.ledger")

TRIES = 12
# Under load groups form while the last write is on its way; this keeps them from being small. It is the pause
# after a group of CROWD: after one or two the next is written almost at once, since nobody would join it. It
# is over, too, when nobody joined for LULL_SECONDS: then the crowd has been served.
PACE_SECONDS = 0.05
LULL_SECONDS = 0.015
CROWD = 8
LONGEST_PAUSE_SECONDS = 1.0
# The API server refuses objects above 1.5 MiB. Only a range in very many pieces gets there.
LARGEST_PAGE = 1_000_000
PRUNED = (
    "the cluster's CRD of IPAMRange is an older one and drops the record of what is taken; apply Berth's: "
    "berth manifests crds --dialects kubipam | kubectl apply --server-side --force-conflicts -f -"
)


class GrantLost(Exception):
    """Another operator was faster: the block is taken, or the request has another one."""


class Stale(Exception):
    """The page has changed since the caller looked at what it was going to do; look again."""


class Pruned(Conflict):
    """The API server did not keep the page it was sent."""


class Facts(Protocol):
    """What is known of requests by their UID. Neither becomes untrue but by a restored backup."""

    def granted(self, uid: str) -> Block | None: ...
    def is_gone(self, uid: str) -> bool: ...


class Reader(Protocol):
    """Who is told what others wrote, and what we did; with it, what went back as another block came first."""

    def turned(self, page: Page) -> None: ...
    def wrote(self, page: Page, returned: list[tuple[str, Block]]) -> None: ...
    def counts(self, page: Page) -> Object: ...


@dataclass(slots=True, eq=False)
class WaitingGrant:
    edit: Edit
    begins: bool = False  # may start the page of a range that has none
    done: bool = False
    error: Exception | None = None

    def finish(self, error: Exception | None = None) -> None:
        self.done, self.error = True, error


class RangeLedger:
    def __init__(self, client: Client, cache: Cache, facts: Facts, reader: Reader) -> None:
        self._client = client
        self._cache = cache
        self._facts = facts
        self._reader = reader
        self.page: Page | None = None
        self.is_pruned = False  # the API server drops what its CRD does not know: no page can be kept
        self.version = ""
        self.epoch = 0  # grows with everything that others wrote
        self.goes_round = False
        self.family = Family.V4
        self._unreadable: str | None = None
        self._told: Object | None = None  # the range as the server last showed it to us alone
        self._key = ("", "")
        self._uid = ""
        self._words: Object = {}
        self._ready: Object = {}
        self._shows_conditions = True  # a CRD of an earlier version drops them: then they are not insisted on
        self._waiting: list[WaitingGrant] = []
        self._lock = asyncio.Lock()
        self._writing = False
        self._wrote_at = 0.0
        self._served = 0  # how many the last write was for
        self._bulk = 0

    @property
    def fault(self) -> str | None:
        """Why nothing can be granted: no page is kept, or the one that is there cannot be read."""
        return PRUNED if self.is_pruned else self._unreadable

    # Following what is there

    def open(self, obj: Object) -> None:
        self._key, self._uid = (obj["metadata"]["namespace"], obj["metadata"]["name"]), meta.uid(obj)
        self._read(obj)

    def close(self) -> None:
        """Nobody asks here any more: whoever still waits is told that the range is gone."""
        self._uid = ""

    def follow(self, obj: Object) -> None:
        """The range changed. While our own write is on its way its answer says whether it was us."""
        if self._writing or version_of(obj) == self.version:
            return
        self._turn(obj)

    def _turn(self, obj: Object) -> None:
        self._read(obj)
        if self.page is not None:
            self._reader.turned(self.page)

    def _read(self, obj: Object) -> None:
        self.epoch += 1
        status = obj.get("status") or {}
        self.version, self._bulk = version_of(obj), _bulk(status)
        try:
            self.page, self._unreadable = read_page(status), None
        except InvalidText as error:
            self.page, self._unreadable = None, str(error)

    def _catch_up(self) -> None:
        obj = self._object()
        if obj is not None:
            self.follow(obj)

    def _object(self) -> Object | None:
        """Our range. One that was made anew under its name has a page of its own, which is not ours. Of one
        version a page the server told us counts: just after a CRD was applied a watch tells by the old."""
        obj = self._cache.get(*self._key)
        if obj is None or meta.uid(obj) != self._uid:
            return None
        told = self._told
        return told if told is not None and edition_of(told) and _is_same(told, obj) else obj

    # What is written

    async def grant(self, uid: str, block: Block, *, chosen: bool, is_returning: bool = False) -> None:
        """Put a block on the page for a request. Raises GrantLost; Stale, if that very block is pending for
        it already: then nothing is written that would tell whether the server's page still says so."""
        moves_cursor = chosen and not is_returning

        def edit(draft: Draft) -> None:
            if draft.pending.get(uid) == block:
                raise Stale
            if self._bulk > LARGEST_PAGE:
                raise NotStored("the range is in too many pieces; release some requests or use another range")
            if not self.goes_round:
                draft.cursors.clear()
            if self._facts.granted(uid) is not None or self._facts.is_gone(uid):
                raise GrantLost
            moves = moves_cursor and self.goes_round
            if not draft.grant(uid, block, moves_cursor=moves, is_returning=is_returning):
                raise GrantLost

        await self._write(WaitingGrant(edit))

    async def release(self, uid: str, blocks: list[Block], shared: list[Block], epoch: int) -> None:
        """Take a request's blocks off the page. The request was seen alive, and going, in this epoch; raises
        Stale if others wrote since: then it may have been released, and its block be another's."""

        def edit(draft: Draft) -> None:
            if uid not in draft.released and epoch != self.epoch:
                raise Stale
            draft.release(uid, blocks, shared)

        await self._write(WaitingGrant(edit))

    async def settle(self, uid: str, block: Block, epoch: int) -> None:
        """The request was seen on the server, in this epoch, to show this block: another one that is pending
        for it goes back. Raises Stale."""

        def edit(draft: Draft) -> None:
            if epoch != self.epoch:
                raise Stale
            if uid in draft.pending:
                draft.settle(uid, block)

        await self._write(WaitingGrant(edit))

    async def abandon(self, uid: str) -> None:
        """The request is gone for certain, and never got the block that is pending for it."""

        def edit(draft: Draft) -> None:
            draft.abandon(uid)

        await self._write(WaitingGrant(edit))

    def has_leftovers(self) -> bool:
        """Is anything pending for one who is gone? The next write gives it back."""
        return self.page is not None and any(self._facts.is_gone(uid) for uid in self.page.pending)

    async def change(self, edit: Edit, version: str, *, begins: bool = False) -> None:
        """An edit that holds only for the page of this version. Raises Stale."""

        def guarded(draft: Draft) -> None:
            if version != self.version:
                raise Stale
            edit(draft)

        await self._write(WaitingGrant(guarded, begins))

    def describe(self, state: str, message: str, reason: str, generation: int) -> None:
        """The range's own state and message, and the same as a condition; they go with the next write."""
        self._words = {"state": state, "message": message or None}
        self._ready = {
            "type": "Ready",
            "status": "True" if state == READY else "False",
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
        }

    async def tidy(self) -> None:
        """Write what is known to be done; with it goes back what nobody will come for any more."""
        await self._write(WaitingGrant(lambda draft: None))

    async def flush(self) -> None:
        """Write the words if they differ from what is there. Where pages are not kept it is written always:
        the answer tells whether they are by now."""
        obj = self._object()
        status = (obj.get("status") or {}) if obj is not None else {}
        said = self._said(status) if self._shows_conditions else self._words
        if self.is_pruned or patch.diff(status, {**status, **said}) is not None:
            with suppress(Pruned):  # the words are kept
                await self._write(WaitingGrant(lambda draft: None, begins=True))

    def _said(self, status: Object) -> Object:
        if not self._ready:
            return self._words
        known = status.get("conditions") or []
        return {**self._words, "conditions": meta.with_condition(known, self._ready, datetime.now(UTC))}

    async def annotate(self, name: str, value: str) -> None:
        """Write an annotation of the range: over this very page, so that nobody's work on it is undone, and
        between two groups, so that none of ours is. Raises Conflict."""
        async with self._lock:
            self._catch_up()
            if (obj := self._object()) is None:
                return
            body = patch.guarded({"metadata": {"annotations": {name: value}}}, obj, uid=True)
            self._writing = True
            try:
                answer = await self._client.patch(RANGE, self._key[1], body, self._key[0])
                self.version = version_of(answer)
                self._told = answer
                self._cache.put(answer)
            finally:
                self._writing = False
                self._catch_up()

    # One write for all who wait

    async def _write(self, mine: WaitingGrant) -> None:
        self._waiting.append(mine)
        try:
            async with self._lock:
                if not mine.done:
                    await self._pace()
                    await self._commit()
        finally:
            if not mine.done and mine in self._waiting:
                self._waiting.remove(mine)  # cut short: nobody hears the answer, so nobody else asks for it
        if mine.error is not None:
            raise mine.error

    async def _pace(self) -> None:
        until = self._wrote_at + PACE_SECONDS * min(1.0, self._served / CROWD)
        joined = 0
        while (left := until - time.monotonic()) > 0 and len(self._waiting) > joined:
            joined = len(self._waiting)
            await asyncio.sleep(min(left, LULL_SECONDS))
        self._wrote_at = time.monotonic()

    async def _commit(self) -> None:
        for attempt in range(TRIES):
            batch, self._waiting = self._waiting, []
            self._served = len(batch)
            try:
                if await self._attempt(batch):
                    return
            finally:
                # Whoever was not answered (we lost the race, or are being stopped) is still waiting.
                self._waiting = [one for one in batch if not one.done] + self._waiting
            await self._refresh()
            await asyncio.sleep(_pause(attempt))
        for one in self._waiting:
            one.finish(Conflict(409, "the range is being written by others all the time"))
        self._waiting = []

    async def _attempt(self, batch: list[WaitingGrant]) -> bool:
        """True if everyone has an answer."""
        self._catch_up()
        obj = self._object()
        if obj is None:
            return _finish(batch, Conflict(409, "the range is gone"))
        page, returned = self._planned(batch)
        try:
            await self._store(obj, page)
        except (Conflict, Unreachable):
            return False
        except KubeError as error:
            return _finish(batch, error)
        if page is not None and self.is_pruned:
            return _finish(batch, Pruned(409, PRUNED))
        if page is not None:
            self._reader.wrote(page, returned)
        return _finish(batch)

    def _planned(self, batch: list[WaitingGrant]) -> tuple[Page | None, list[tuple[str, Block]]]:
        """The next page; edits that do not fit any more are answered here."""
        draft = Draft(self.page or Page())
        returned = self._settle(draft)
        for one in batch:
            if one.done:
                continue
            if self.page is None and not one.begins:
                one.finish(Conflict(409, "nothing is granted before what is in use was written down"))
                continue
            try:
                one.edit(draft)
            except (GrantLost, Stale, NotStored) as error:
                one.finish(error)
        begun = self.page is not None or draft.adopted
        return draft.page() if begun else None, returned

    def _settle(self, draft: Draft) -> list[tuple[str, Block]]:
        """Drop the entries whose second half is done."""
        returned = []
        for uid, pending in list(draft.pending.items()):
            block = self._facts.granted(uid)
            if block == pending:
                draft.settle(uid, pending)
            elif block is None and self._facts.is_gone(uid) and (extra := draft.abandon(uid)) is not None:
                returned.append((uid, extra))
        draft.released -= {uid for uid in draft.released if self._facts.is_gone(uid)}
        return returned

    async def _store(self, obj: Object, page: Page | None) -> None:
        status = obj.get("status") or {}
        fields = page.rendered(self.family) if page is not None else {}
        if page is not None:
            fields |= self._reader.counts(page)
        desired = {**status, **fields, **self._said(status)}
        change = patch.diff(status, desired)
        if change is None and not self.is_pruned:
            return
        edition = secrets.token_hex(8)
        whole = {field: desired[field] for field in change or ()}  # a step names all of a field
        steps = _on_this_very_page(obj, {**whole, "edition": edition})
        self._writing = True
        try:
            answer = await self._client.patch(
                RANGE, self._key[1], steps, self._key[0], kind=PatchKind.JSON, subresource="status"
            )
            self._note_pruned(edition_of(answer) != edition)
            self._shows_conditions = not self._ready or bool((answer.get("status") or {}).get("conditions"))
            if self.is_pruned:
                self._turn(answer)
            else:
                self.page, self.version, self._bulk = page, version_of(answer), _bulk(fields)
            self._told = answer
            self._cache.put(answer)
        finally:
            self._writing = False
            self._catch_up()

    async def look(self) -> Object:
        """The range as the server has it."""
        self._told = found = await self._client.get(RANGE, self._key[1], self._key[0])
        self._cache.put(found)
        self._catch_up()
        return found

    def _note_pruned(self, is_pruned: bool) -> None:
        if is_pruned and not self.is_pruned:
            _log.error("pages are not kept", range="/".join(self._key), error=PRUNED)
        self.is_pruned = is_pruned

    async def _refresh(self) -> None:
        """What is there now: after a lost race, or when no answer came and the effect is unknown."""
        try:
            await self.look()
        except NotFound:
            if (obj := self._cache.get(*self._key)) is not None:
                self._cache.forget_deleted(obj)
        except KubeError as error:
            _finish(self._waiting, error)


def version_of(obj: Object) -> str:
    """What tells a page from every other. The resource version alone does not: after a restored backup the
    server gives the same numbers again."""
    return f"{meta.resource_version(obj)} {edition_of(obj)}"


def _is_same(one: Object, two: Object) -> bool:
    return meta.uid(one) == meta.uid(two) and meta.resource_version(one) == meta.resource_version(two)


def edition_of(obj: Object) -> str:
    """The youngest field of a page: a CRD that keeps it keeps the others."""
    return (obj.get("status") or {}).get("edition") or ""


def _on_this_very_page(obj: Object, change: Object) -> list[Object]:
    steps = patch.status_steps(obj, change)
    if not obj.get("status"):
        return steps
    edition = {"op": "test", "path": "/status/edition", "value": obj["status"].get("edition")}
    return [edition, *steps]


def _pause(attempt: int) -> float:
    """A race that was lost once is run again at once; then a few times a second, and ever less."""
    if attempt == 0:
        return random.uniform(0, 0.02)
    longest: float = min(LONGEST_PAUSE_SECONDS, 0.1 * 2**attempt)
    return random.uniform(0.5, 1.0) * longest


def _bulk(status: Object) -> int:
    return sum(len(text) + 3 for text in status.get("taken") or ())


def _finish(batch: list[WaitingGrant], error: Exception | None = None) -> bool:
    for one in batch:
        if not one.done:
            one.finish(error)
    return True
