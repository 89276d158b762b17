"""Letting go, step by step, with everything around it played."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from berth.control.cache import Cache
from berth.control.informers import Informer, WatchSpec
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.confirm import Holding
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.release import Releasing, Restraint
from berth.dialects.vitistack.service_annotations import Terms
from berth.errors import ApiDown, Conflict, KubeError, NotFound
from berth.leasing.holders import Identity
from berth.net import parse_address
from berth.secret import Secret

ADDRESS = parse_address("10.0.0.1")
RECORD = Record("n", Identity("s", "n-id", "c"), "inet", ADDRESS, "default", "", Terms(), uid="u", lived=True)
LIVE = {
    "metadata": {
        "namespace": "n",
        "name": "s",
        "uid": "u",
        "annotations": {kinds.ADDRESSES: "10.0.0.1", kinds.ZONE: "inet", kinds.SECRET_NAME: "default"},
    }
}


@dataclass
class Stage:
    """What is asked of the others, in order; a step may be told to fail."""

    steps: list[str] = field(default_factory=list)
    failing: dict[str, Exception] = field(default_factory=dict)
    found: Record = RECORD

    def step(self, name: str, answer: Any = None) -> Any:
        async def taken(*_: Any, **__: Any) -> Any:
            self.steps.append(name)
            if name in self.failing:
                raise self.failing[name]
            return answer

        return taken

    def releasing(self, holding: Any = None) -> Releasing:
        async def gone(*_: Any) -> Any:
            raise NotFound(404, "gone")

        async def cluster_id() -> str:
            return "c"

        async def secrets_of(_: Record) -> tuple[Secret, ...]:
            return (Secret("a-good-secret"),)

        async def holds(_: Record) -> bool:
            return False

        parts: Any = SimpleNamespace(
            places=SimpleNamespace(cluster_id=cluster_id),
            neighbours=SimpleNamespace(listing=lambda _: []),
            pools=SimpleNamespace(remove=self.step("pool")),
            registrar=SimpleNamespace(release=self.step("release")),
            records=SimpleNamespace(drop=self.step("record"), of_address=lambda _: []),
            secrets_of=secrets_of,
        )
        silent = {"has_met": lambda _: True, "doubt": lambda _: None}
        holding = holding or SimpleNamespace(**silent, forget=lambda _: self.steps.append("forget"))
        inventories: Any = SimpleNamespace(heard=True)
        events: Any = SimpleNamespace(event=lambda *_: None)
        brake: Any = SimpleNamespace(holds=holds)
        server: Any = SimpleNamespace(get=gone)
        services = Informer(WatchSpec((kinds.SERVICE,)), Cache(), server)
        return Releasing(parts, holding, services, events, Restraint(inventories, brake))

    def holding(self, found: Record) -> Holding:
        """Of which the record is what is found."""

        async def secrets_of(_: Record) -> tuple[Secret, ...]:
            return (Secret("a-good-secret"),)

        parts: Any = SimpleNamespace(
            records=SimpleNamespace(seen=lambda _: self.found, of_service=lambda *_: [self.found]),
            registrar=SimpleNamespace(confirm=self.step("confirm")),
            pools=SimpleNamespace(add=self.step("pooled")),
            secrets_of=secrets_of,
        )
        self.found = found
        events: Any = SimpleNamespace(event=lambda *_: None)
        return Holding(parts, events)


async def test_nothing_lies_between_the_release_and_the_end_of_its_record() -> None:
    """From then on somebody else may be given the address, and our record would be in his way."""
    stage = Stage()
    assert await stage.releasing().remove_finalizer(RECORD) == 0.0
    assert stage.steps == ["pool", "release", "record", "forget"]


async def test_a_pool_that_cannot_be_written_keeps_the_record_and_not_the_address() -> None:
    stage = Stage(failing={"pool": KubeError("pools are frozen")})
    with pytest.raises(KubeError, match="frozen"):
        await stage.releasing().remove_finalizer(RECORD)
    assert stage.steps == ["pool", "release"]


@pytest.mark.parametrize("step", ["record", "release"])
async def test_what_is_listed_again_while_it_is_released_is_confirmed_again(step: str) -> None:
    """LoadBalancer, ClusterIP and back: the webhook wrote the record anew and confirmed, then our DELETE was
    heard, whatever we heard of it.
    """
    lost: Exception = Conflict(409, "changed") if step == "record" else ApiDown("no answer")
    stage = Stage(failing={step: lost})
    holding = stage.holding(replace(RECORD, lived=False))
    assert await holding.hold(LIVE, ADDRESS) == 0.0
    with pytest.raises(type(lost)):
        await stage.releasing(holding).remove_finalizer(stage.found)
    stage.found = replace(stage.found, until=time.time() + 60)
    stage.steps.clear()
    for _ in range(2):
        assert await holding.hold(LIVE, ADDRESS) == 0.0
    assert stage.steps == ["confirm", "pooled", "pooled"]
