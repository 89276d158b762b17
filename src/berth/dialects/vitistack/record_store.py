"""Where records lie: found by name, Service or address; written in groups.

New records that come while a write is under way wait for the next one, which puts them all into one new
ConfigMap: a flood of Services costs a few writes. A record that is there is changed and taken away by
itself, on condition that it still reads as it did.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from berth.control.batching import Batcher, LoadGauge, Tasks
from berth.control.cache import Cache
from berth.control.informers import Informer
from berth.dialects.vitistack import records
from berth.dialects.vitistack.records import Record
from berth.errors import Conflict, Invalid, KubeError, NotFound, StatusError
from berth.kube.client import PatchKind
from berth.metrics import Metrics
from berth.net import Address

Object = dict[str, Any]
TRIES = 5
GATHER_SECONDS = 0.04  # under load
TOGETHER, TOGETHER_BYTES = 100, 512 * 1024  # usually about 50 kB; a ConfigMap may have 1 MiB
TOO_LARGE = 413


class Filed:
    """All records as the watch shows them, perhaps a moment old. Listens before anybody who asks."""

    def __init__(self, cache: Cache) -> None:
        self._by_name: dict[str, dict[str, Record]] = {}
        self._by_service: dict[str, dict[tuple[str, str], Record]] = {}
        self._by_address: dict[Address, dict[tuple[str, str], Record]] = {}
        cache.listen(self._changed)

    def __iter__(self) -> Iterator[Record]:
        return (record for lying in list(self._by_name.values()) for record in list(lying.values()))

    def seen(self, name: str) -> Record | None:
        """Two replicas may have written it down at once: then the one that lasts longer."""
        lying = self._by_name.get(name)
        return max(lying.values(), key=_lasting) if lying else None

    def lying(self, name: str, place: str) -> Record | None:
        return self._by_name.get(name, {}).get(place)

    def of_service(self, namespace: str, name: str) -> list[Record]:
        return list(self._by_service.get(f"{namespace}/{name}", {}).values())

    def of_address(self, address: Address) -> list[Record]:
        return list(self._by_address.get(address, {}).values())

    def _changed(self, old: Object | None, new: Object | None) -> None:
        for record in _left(old, new):
            _take_out(self._by_name, record.name, record.place)
            _take_out(self._by_service, record.service, (record.name, record.place))
            _take_out(self._by_address, record.address, (record.name, record.place))
        for record in _left(new, old):
            self._by_name.setdefault(record.name, {})[record.place] = record
            self._by_service.setdefault(record.service, {})[record.name, record.place] = record
            self._by_address.setdefault(record.address, {})[record.name, record.place] = record


def _left(one: Object | None, other: Object | None) -> Iterable[Record]:
    """The records that only the first one has, or has otherwise."""
    if one is None:
        return ()
    texts = (other or {}).get("data") or {}
    data = {key: text for key, text in (one.get("data") or {}).items() if texts.get(key) != text}
    return records.parse({**one, "data": data})


def differences(old: Object | None, new: Object | None) -> Iterable[Record]:
    """What is new, changed or gone."""
    changed = {record.name: record for record in _left(old, new)}
    return ({**changed, **{record.name: record for record in _left(new, old)}}).values()


def _take_out(index: dict[Any, dict[Any, Record]], key: Any, place: Any) -> None:
    if key in index:
        index[key].pop(place, None)
        if not index[key]:
            del index[key]


def _lasting(record: Record) -> tuple[bool, float, str]:
    return (not record.released, record.until or float("inf"), record.place)


def _steps(record: Record, text: str | None) -> list[Object]:
    path = f"/data/{record.name}"
    test = {"op": "test", "path": path, "value": record.text}
    change = {"op": "remove"} if text is None else {"op": "replace", "value": text}
    return [test, {**change, "path": path}]


def _fitting(waiting: Iterable[Record]) -> int:
    """How many of them go into one ConfigMap; at least one."""
    size = 0
    for number, record in enumerate(waiting):
        size += len(record.written().encode())
        if number == TOGETHER or (number and size > TOGETHER_BYTES):
            return number
    return TOGETHER


def _is_too_much(error: BaseException) -> bool:
    """For a ConfigMap, the API server or etcd, which says so with status 500."""
    if isinstance(error, StatusError):
        return isinstance(error, Invalid) or error.code == TOO_LARGE or "too large" in error.message
    return False


@dataclass(frozen=True, slots=True)
class Cabinet:
    """What webhooks and controller share of the records."""

    filed: Filed
    metrics: Metrics
    load: LoadGauge
    tasks: Tasks


class Records:
    def __init__(self, kept: Informer, namespace: str, cabinet: Cabinet) -> None:
        self._kept = kept
        self._namespace = namespace
        self._filed = filed = cabinet.filed
        self._metrics = cabinet.metrics
        self._tasks = cabinet.tasks
        self._new: Batcher[Record, None] = Batcher(
            self._create,
            cabinet.tasks,
            fitting=_fitting,
            gather=partial(cabinet.load.gather, GATHER_SECONDS),
        )
        self._changes: dict[str, Batcher[list[Object], None]] = {}  # by place
        self.seen, self.of_service, self.of_address = filed.seen, filed.of_service, filed.of_address

    async def put(self, record: Record) -> Record | None:
        """Writes it, whatever is there; what was there before comes back."""
        for _ in range(TRIES):
            before = self._filed.seen(record.name)
            if before is None:
                await self._new.ask(record)
                return None
            try:
                await self._change(before, record.written())
                return before
            except (Conflict, NotFound):
                await self.look(before)
        raise Conflict(409, f"record {record.name} changes too often")

    async def save(self, record: Record) -> None:
        """Conflict if it changed since it was read."""
        await self._change(record, record.written())

    async def drop(self, record: Record) -> None:
        """Conflict if it changed since it was read; gone already is fine."""
        try:
            await self._change(record, None)
        except NotFound:
            await self.look(record)

    async def look(self, record: Record) -> Record | None:
        """As it is stored now."""
        await self._kept.fetch(self._namespace, record.place)
        return self._filed.seen(record.name)

    # What is there

    async def _change(self, record: Record, text: str | None) -> None:
        """On condition that it still reads as it did when we read it. None: it goes."""
        if text == record.text:
            return
        try:
            await self._changed_in(record.place).ask(_steps(record, text))
        except Conflict:
            # An answer may have been lost, and this been the second try of what was done already.
            await self.look(record)
            now = self._filed.lying(record.name, record.place)
            if (now.text if now is not None else None) != text:
                raise

    def _changed_in(self, place: str) -> Batcher[list[Object], None]:
        """Changes in one place go together or one after another, so as not to be in each other's way."""
        if place not in self._changes:
            self._changes[place] = Batcher(
                partial(self._change_together, place),
                self._tasks,
                fitting=lambda waiting: sum(1 for _ in waiting),
                idle=lambda: self._changes.pop(place, None),
            )
        return self._changes[place]

    async def _change_together(self, place: str, group: list[list[Object]]) -> list[Exception | None]:
        try:
            await self._patch(place, [step for steps in group for step in steps])
        except Exception as error:
            if len(group) == 1:
                return [error]
            # One of them does not fit: each by itself.
            return [answer for steps in group for answer in await self._change_together(place, [steps])]
        return [None] * len(group)

    async def _patch(self, place: str, steps: list[Object]) -> None:
        self._metrics.record_written("change")
        unseen = {"metadata": {"namespace": self._namespace, "name": place}}
        lying = self._kept.cache.get(self._namespace, place) or unseen
        answer = await self._kept.patch(lying, steps, kind=PatchKind.JSON)
        if not answer.get("data"):
            await self._clear(answer)

    async def tidy(self) -> None:
        """Takes away what was emptied and is still there, for whatever reason; nothing is added to it."""
        for lying in self._kept.cache:
            if not lying.get("data"):
                await self._clear(lying)

    async def _clear(self, lying: Object) -> None:
        with suppress(KubeError):
            await self._kept.delete(lying)

    # New ones

    async def _create(self, group: list[Record]) -> list[Exception | None]:
        name = f"records-{secrets.token_hex(8)}"
        try:
            self._metrics.record_written("create", len(group))
            await self._kept.create(records.body(name, self._namespace, group))
        except Exception as error:
            if len(group) > 1 and _is_too_much(error):
                # Nobody is refused for what another one wrote.
                return [answer for one in group for answer in await self._create([one])]
            return [error] * len(group)
        return [None] * len(group)
