"""The rows are proven: each of these bugs, planted in the API's process, is caught by a row.

| bug | row |
|---|---|
| no unique index | T18 |
| cool-down in memory | T01 |
| cleaner without re-check | T34 |
| holder list overwritten | T34 |
| rotation in two commits | T26 |
| body logged | T28 |
| deny flag ignored | T27 |
| no sync | T04 |
| frozen cluster released | T25 |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest
from tests.central.faults.crowding import KEY, NET, POOL, crowd, entry, races
from tests.central.faults.killing import cut_through, kill_through, opened, rotate_through
from tests.central.faults.plants import PLANTS
from tests.central.faults.telling import canary, forged_events, two_operators
from tests.faults.books import Books
from tests.faults.store_auditor import store_audited
from tests.support.central import Options, World
from tests.support.eventually import eventually
from tests.support.lives import lives
from tests.support.started import PROGRAM, ROOT, neighbour

from berth.store.requests import RegisterRequest

pytestmark = pytest.mark.faults
Start = Callable[..., AbstractAsyncContextManager[World]]


@contextmanager
def caught(violation: str) -> Iterator[None]:
    """The row must fail, and with this violation; task groups wrap what they pass on."""
    with pytest.raises(Exception) as raised:
        yield
    found = messages(raised.value)
    assert any(re.search(violation, text) for text in found), raised.value


def messages(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [text for one in error.exceptions for text in messages(one)]
    return [str(error)] if isinstance(error, AssertionError) else []


async def test_t18_catches_a_table_without_its_unique_index(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTS["no unique index"](monkeypatch.setattr)
    with caught(r"I[12]"):
        await crowd(start, 4000, 18)


async def test_the_auditor_sees_in_the_store_what_its_unique_index_would_have_refused(
    start: Start, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas in turn: each believes its memory, and gives what the other has given."""
    PLANTS["no unique index"](monkeypatch.setattr)
    async with (
        start(Options(zones=NET)) as one,
        start(Options(zones=NET)) as two,
        store_audited(Books(database, NET), tmp_path) as report,
    ):
        assert report.violations == []
        for turn in range(3):
            for name, world in (("one", one), ("two", two)):
                await world.ledger.submit(RegisterRequest(POOL, entry(f"{name}-{turn}"), KEY))

        async def is_seen() -> bool:
            return any(re.search(r"I1: \S+ has 2 rows", text) for text in report.violations)

        await eventually(is_seen, 60)


async def test_t01_catches_a_retention_that_only_the_process_remembers(tmp_path: Path) -> None:
    """From where the scenario has a release on: what comes before cannot show it."""
    database = f"sqlite:///{tmp_path}/berth.db"
    async with opened(database) as engine:
        with lives(database, tmp_path / "pepper") as run, caught("I3"):
            await kill_through(run, engine, 150, first=100, plant="cool-down in memory")


@pytest.mark.parametrize("bug", ["cleaner without re-check", "holder list overwritten"])
async def test_t34_catches_who_forgets_that_others_come_and_go(
    start: Start, monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    PLANTS[bug](monkeypatch.setattr)
    with caught("I3"):
        await races(start, 100)


async def test_t26_catches_a_rotation_in_two_commits(database: str, tmp_path: Path) -> None:
    pepper = tmp_path / "pepper"
    async with opened(database) as engine:
        with lives(database, pepper) as run, caught("are accepted"):
            await rotate_through(run, engine, pepper, 50, plant="rotation in two commits")


async def test_t28_catches_a_body_in_the_log(tmp_path: Path) -> None:
    planted = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.central.faults.plants import PLANTS"
    with caught("I6"):
        await canary(tmp_path, f"{planted}; PLANTS['body logged'](setattr); {PROGRAM}")


async def test_t27_catches_a_deny_flag_that_nobody_looks_at(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTS["deny flag ignored"](monkeypatch.setattr)
    with neighbour("sse", tmp_path / "ror") as ror, caught("unauthorised"):
        await forged_events(world, ror, tmp_path)


async def test_t04_catches_a_commit_that_is_not_on_the_disk(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/berth.db"
    with lives(database, tmp_path / "pepper") as run, caught(r"I[123]|ok"):
        await cut_through(run, database, 50, 50, plant="no sync")


async def test_t25_catches_a_copy_that_may_release(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS["frozen cluster released"](monkeypatch.setattr)
    with caught("released"):
        await two_operators(start)
