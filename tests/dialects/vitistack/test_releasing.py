"""Letting go, step by step, with everything around it played."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from berth.control.cache import Cache
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.releasing import Releasing, Restraint
from berth.dialects.vitistack.wish import Terms
from berth.errors import KubeError, NotFound
from berth.leasing.holders import Identity
from berth.net import parse_address
from berth.store.secrets import Secret

ADDRESS = parse_address("10.0.0.1")
RECORD = Record("n", Identity("s", "n-id", "c"), "inet", ADDRESS, "default", "", Terms(), uid="u", lived=True)


@dataclass
class Stage:
    """What is asked of the others, in order; a step may be told to fail."""

    steps: list[str] = field(default_factory=list)
    failing: dict[str, Exception] = field(default_factory=dict)

    def step(self, name: str, answer: Any = None) -> Any:
        async def taken(*_: Any, **__: Any) -> Any:
            self.steps.append(name)
            if name in self.failing:
                raise self.failing[name]
            return answer

        return taken

    def releasing(self) -> Releasing:
        async def gone(*_: Any) -> Any:
            raise NotFound(404, "gone")

        async def cluster_id() -> str:
            return "c"

        async def secrets_of(_: Record) -> tuple[Secret, ...]:
            return (Secret("a-good-secret"),)

        async def holds(_: Record) -> bool:
            return False

        parts: Any = SimpleNamespace(
            client=SimpleNamespace(get=gone),
            places=SimpleNamespace(cluster_id=cluster_id),
            neighbours=SimpleNamespace(listing=lambda _: []),
            pools=SimpleNamespace(remove=self.step("pool")),
            registrar=SimpleNamespace(release=self.step("release")),
            records=SimpleNamespace(drop=self.step("record"), of_address=lambda _: []),
            secrets_of=secrets_of,
        )
        holding: Any = SimpleNamespace(has_met=lambda _: True, forget=lambda _: self.steps.append("forget"))
        inventories: Any = SimpleNamespace(heard=True)
        events: Any = SimpleNamespace(event=lambda *_: None)
        brake: Any = SimpleNamespace(holds=holds)
        return Releasing(parts, holding, Cache(), events, Restraint(inventories, brake))


async def test_nothing_lies_between_the_release_and_the_end_of_its_record() -> None:
    """From then on somebody else may be given the address, and our record would be in his way."""
    stage = Stage()
    assert await stage.releasing().let_go(RECORD) == 0.0
    assert stage.steps == ["pool", "release", "record", "forget"]


async def test_a_pool_that_cannot_be_written_keeps_the_record_and_not_the_address() -> None:
    stage = Stage(failing={"pool": KubeError("pools are frozen")})
    with pytest.raises(KubeError, match="frozen"):
        await stage.releasing().let_go(RECORD)
    assert stage.steps == ["pool", "release"]
