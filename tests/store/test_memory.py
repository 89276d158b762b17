"""What the ledger remembers, after a commit that nobody heard of and after its history was pruned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from berth.errors import StoreDown
from berth.leasing.holders import Entry, Identity
from berth.leasing.model import Pool
from berth.net import parse_range
from berth.secret import Pepper, Secret
from berth.store.clock_guard import ClockGuard
from berth.store.engine import Engine, Transaction
from berth.store.ledger import Ledger
from berth.store.memory import PoolMemory
from berth.store.requests import Granted, LedgerAnswer, RegisterRequest, ReleaseRequest
from berth.store.settlement import LedgerRules
from berth.store.sweep import Sweeper

POOL = "z/4"
POOLS = {POOL: Pool(POOL, (parse_range("192.0.2.0/24"),))}
RULES = LedgerRules(Pepper({"k": b"x" * 32}))
KEY = Secret("secret-one")


class Unheard:
    """An engine that can do a commit, let a sweep see it, and only then lose the line."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ledger: Ledger | None = None
        self.cut = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @asynccontextmanager
    async def transaction(self, *, slow: bool = False, often: bool = False) -> AsyncIterator[Transaction]:
        async with self._engine.transaction(slow=slow, often=often) as tx:
            yield tx
        if self.cut and self.ledger is not None:
            self.cut = False
            await self.ledger.refresh()
            raise StoreDown("the line is cut")


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each time that everything was read."""
    found: list[int] = []
    original = PoolMemory.load

    async def counted(self: PoolMemory, *args: Any) -> None:
        found.append(1)
        await original(self, *args)

    monkeypatch.setattr(PoolMemory, "load", counted)
    return found


def entry(name: str) -> Entry:
    return Entry(Identity(name, "n", "c"))


async def register(ledger: Ledger, name: str) -> LedgerAnswer:
    return await ledger.submit(RegisterRequest(POOL, entry(name), KEY))


async def test_a_commit_nobody_heard_of_is_found_without_reading_everything(
    engine: Engine, loads: list[int]
) -> None:
    unheard = Unheard(engine)
    async with Ledger.open(unheard, RULES, POOLS) as ledger:
        unheard.ledger = ledger
        for number in range(5):
            unheard.cut = True
            assert await register(ledger, f"s{number}") == Granted(f"192.0.2.{number}", fresh=False)
        assert await register(ledger, "next") == Granted("192.0.2.5", fresh=True)
    assert len(loads) == 1, "at the start"


async def test_history_is_kept_for_its_time_however_much_there_is(engine: Engine) -> None:
    """1,200 lines and more go in one pass; a replica that has missed them still sees what is free."""
    async with Ledger.open(engine, RULES, POOLS) as ledger, Ledger.open(engine, RULES, POOLS) as other:
        for turn in range(2):
            for number in range(200):
                await register(ledger, f"s{number}")
                await ledger.submit(ReleaseRequest(POOL, entry(f"s{number}"), KEY, f"192.0.2.{number}"))
            await sweeper(ledger, keeps_ms=10**9).sweep()
            assert await events(engine) == 800 * (turn + 1)
        await register(ledger, "last")
        await sweeper(ledger, keeps_ms=-1).sweep()
        assert await events(engine) == 0
        assert await register(other, "next") == Granted("192.0.2.1", fresh=True)
        assert await register(ledger, "after") == Granted("192.0.2.2", fresh=True)


def sweeper(ledger: Ledger, keeps_ms: int) -> Sweeper:
    return Sweeper(ledger, ClockGuard(), "test", history_ms=keeps_ms)


async def events(engine: Engine) -> int:
    async with engine.snapshot() as tx:
        return int((await tx.rows("SELECT count(*) FROM history"))[0][0])
