"""The brake on mass release: whose word lets it go, and what it remembers."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from berth.control.cache import Cache
from berth.dialects.vitistack import brake as braking
from berth.dialects.vitistack import kinds, records
from berth.dialects.vitistack.brake import ReleaseBrake
from berth.dialects.vitistack.record_store import Filed
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.service_annotations import Terms
from berth.leasing.holders import Identity
from berth.metrics import Metrics
from berth.net import Address, Family


class Stage:
    """Records without Services; a person's word is an annotation."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.filed = Filed(self.cache)
        self.annotations: dict[str, str] = {}
        self.told: list[str] = []
        parts: Any = SimpleNamespace(
            client=SimpleNamespace(get=self._namespace),
            settings=SimpleNamespace(namespace="ipam-system"),
            neighbours=SimpleNamespace(listing=lambda address: []),
        )
        events: Any = SimpleNamespace(event=lambda *said: self.told.append(said[3]))
        self.brake = ReleaseBrake(parts, self.filed, events, Metrics())
        self.brake.watch(self.cache, lambda record: False)

    async def _namespace(self, *_: Any) -> dict[str, Any]:
        return {"metadata": {"annotations": dict(self.annotations)}}

    def write(self, record: Record) -> dict[str, Any]:
        lying = records.body(f"at-{record.name}", "ipam-system", [record])
        lying["metadata"] |= {"uid": record.name, "resourceVersion": "1"}
        self.cache.put(lying)
        return lying


def record(number: int, until: float = 0.0) -> Record:
    who, address = Identity(f"s{number}", "n", "c"), Address(Family.V4, 0x0A000000 + number)
    return Record("n", who, "inet", address, "default", "", Terms(), f"u{number}", lived=True, until=until)


async def test_a_persons_word_holds_until_all_of_them_are_gone(monkeypatch: Any) -> None:
    """Some go at once, the others later: the word was for all of them."""
    monkeypatch.setattr(braking, "FRESH_SECONDS", 0.0)
    stage = Stage()
    lying = [stage.write(record(number)) for number in range(50)]
    assert await stage.brake.holds(record(0))
    stage.annotations[kinds.RELEASE_ABSENT] = stage.told[-1].rpartition("=")[2]
    assert not await stage.brake.holds(record(0))
    for gone in lying[:20]:
        stage.cache.forget_deleted(gone)
    await asyncio.sleep(0.01)
    assert not await stage.brake.holds(record(40))
    assert len(stage.told) == 1


async def test_the_word_is_for_those_that_were_told_of(monkeypatch: Any) -> None:
    monkeypatch.setattr(braking, "FRESH_SECONDS", 0.0)
    stage = Stage()
    for number in range(50):
        stage.write(record(number))
    assert await stage.brake.holds(record(0))
    stage.annotations[kinds.RELEASE_ABSENT] = stage.told[-1].rpartition("=")[2]
    assert not await stage.brake.holds(record(0))
    for number in range(50, 100):
        stage.write(record(number))
    assert await stage.brake.holds(record(60))


async def test_nothing_is_remembered_of_what_is_gone() -> None:
    stage = Stage()
    for number in range(100):
        stage.cache.forget_deleted(stage.write(record(number, until=time.time() + 90)))
    assert not stage.brake._met
