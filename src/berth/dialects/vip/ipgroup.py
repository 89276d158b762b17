"""An IPGroup's own life: kept while its addresses are in use; its status tells its use and what is wrong.

A group without addresses in use carries no finalizer of ours, so that it can go whether we run or not.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from berth import log
from berth.control.informers import Informer
from berth.control.outcome import DONE, After, Outcome
from berth.dialects.dialect import Dependencies
from berth.dialects.vip import kinds
from berth.dialects.vip.leases import IPLedger
from berth.dialects.vip.pools import OpenSegment, Shelf
from berth.dialects.vip.translate import block_of
from berth.errors import Invalid, NotFound
from berth.kube import meta, patch
from berth.kube.client import PatchKind
from berth.kube.meta import Ref
from berth.metrics import PoolCounts, PoolKey

Object = dict[str, Any]
_log = log.get("berth.vip")
# However many Services arrive, a group's status is written about once a second.
STATUS_SECONDS = 1.0
LARGEST_COUNT = 2**63 - 1
MOST_NAMED = 10
FAULT = "InvalidSegment"


class GroupLife:
    def __init__(self, kit: Dependencies, kept: Informer, shelf: Shelf, ledger: IPLedger) -> None:
        self._kit = kit
        self._kept = kept
        self._shelf = shelf
        self._ledger = ledger
        self._written_at: dict[Ref, float] = {}
        self._said: dict[Ref, str | None] = {}

    async def reconcile(self, ref: Ref) -> Outcome:
        group = self._kept.cache.get("", ref.name)
        opened = self._shelf.get(ref.name)
        if group is None or opened is None:
            self._kit.metrics.pool_gone(PoolKey("vip", "", ref.name))
            self._written_at.pop(ref, None)
            self._said.pop(ref, None)
            return DONE
        self._complain(group, ref, opened)
        kept = await self._keep(group)
        return DONE if kept is None else await self._show(kept, ref, opened)

    def _complain(self, group: Object, ref: Ref, opened: OpenSegment) -> None:
        fault = opened.segment.fault
        if fault is not None and self._said.get(ref) != fault:
            self._kit.events.event(group, "Warning", FAULT, f"no address comes from this group: {fault}")
        self._said[ref] = fault

    async def _keep(self, group: Object) -> Object | None:
        """With our finalizer while its addresses are in use, without it otherwise; None once it is gone."""
        in_use = self._ledger.count(kinds.GROUP_LABEL, group["metadata"]["name"]) > 0
        if in_use == meta.has_finalizer(group, kinds.GROUP_FINALIZER):
            return group
        if in_use and meta.is_deleting(group):
            return group  # too late to hold it; its addresses stay with their Services all the same
        if not in_use:
            return await self._kept.remove_finalizer(group, kinds.GROUP_FINALIZER)
        steps = patch.add_finalizer(group, kinds.GROUP_FINALIZER) or []
        return await self._write(group, steps, kind=PatchKind.JSON)

    async def _show(self, group: Object, ref: Ref, opened: OpenSegment) -> Outcome:
        usage = opened.desk.space.usage()
        counts = PoolCounts(usage.total, usage.used, usage.free, usage.reserved)
        self._kit.metrics.pool(PoolKey("vip", "", ref.name), counts)
        wait = self._written_at.get(ref, 0.0) + STATUS_SECONDS - time.monotonic()
        if wait > 0:
            return After(wait)  # before the look at every address: under a flood we are asked all the time
        desired = group_status(group, opened, self._outside(group, opened), datetime.now(UTC))
        change = patch.diff(group.get("status") or {}, desired)
        if change is None:
            return DONE
        self._written_at[ref] = time.monotonic()
        try:
            body = {"metadata": {"uid": meta.uid(group)}, "status": change}
            await self._write(group, body, subresource="status")
        except Invalid as error:
            # Stored before the schema asked for more; the Event has said what is wrong.
            _log.warning("an IPGroup is not valid and cannot have a status", group=ref.name, error=str(error))
        return DONE

    def _outside(self, group: Object, opened: OpenSegment) -> list[str]:
        """Addresses in use that the group could not give today."""
        space = opened.desk.space
        if not space.usage().outside:
            return []
        blocks = map(block_of, self._ledger.of_pool(kinds.GROUP_LABEL, group["metadata"]["name"]))
        outside = [block for block in blocks if block is not None and not space.contains(block)]
        return [block.address for block in sorted(outside)]

    async def _write(
        self, group: Object, body: Any, *, kind: PatchKind = PatchKind.MERGE, subresource: str = ""
    ) -> Object | None:
        try:
            return await self._kept.patch(group, body, kind=kind, subresource=subresource)
        except NotFound:
            return None


def group_status(group: Object, opened: OpenSegment, outside: list[str], now: datetime) -> Object:
    """Pure."""
    usage = opened.desk.space.usage()
    counts = {"total": usage.total, "used": usage.used, "free": usage.free, "reserved": usage.reserved}
    counts["outside"] = len(outside)
    status = dict(group.get("status") or {})
    status["addresses"] = {name: min(count, LARGEST_COUNT) for name, count in counts.items()}
    ready = _ready(group, opened, outside)
    status["conditions"] = meta.with_condition(status.get("conditions") or [], ready, now)
    return status


def _ready(group: Object, opened: OpenSegment, outside: list[str]) -> Object:
    ready = {"type": "Ready", "observedGeneration": group["metadata"].get("generation", 1)}
    if opened.segment.fault is not None:
        return {**ready, "status": "False", "reason": FAULT, "message": opened.segment.fault}
    if opened.closing:
        text = "waiting for its addresses to be released; nothing new is given out"
        return {**ready, "status": "False", "reason": "Deleting", "message": text}
    return {**ready, "status": "True", "reason": "Ready", "message": "; ".join(_remarks(opened, outside))}


def _remarks(opened: OpenSegment, outside: list[str]) -> list[str]:
    said = []
    if outside:
        said.append(f"in use though no longer of this group, kept until released: {_listed(outside)}")
    if opened.segment.ignored:
        entries = _listed([repr(text) for text in opened.segment.ignored])
        said.append(f"no single address and therefore without effect in excludedIPs: {entries}")
    return said


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more
