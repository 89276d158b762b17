"""T01, T03, T04, T26, T45: the API killed at every step, on both stores, and the power cut."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.central.faults.killing import back_up_through, cut_through, kill_through, opened, rotate_through
from tests.faults.books import Books
from tests.faults.store_auditor import store_right
from tests.support.lives import lives

pytestmark = pytest.mark.faults


async def test_t01_killed_at_every_step(
    database: str, tmp_path: Path, times: int, tried: Callable[[int], None]
) -> None:
    """T01: 150 deaths on each store, at every step of a life in turn."""
    books = Books(database, shared=True, swept=False)  # a life that dies early never sweeps
    async with opened(database) as engine, store_right(books, tmp_path):
        with lives(database, tmp_path / "pepper") as run:
            steps = await kill_through(run, engine, 150 * times)
            tried(run.deaths)
    assert steps > 50, "hardly any steps: are they still counted?"


async def test_t03_killed_at_the_nth_write_of_sqlite(
    tmp_path: Path, times: int, tried: Callable[[int], None]
) -> None:
    """T03: 100 deaths in the middle of what SQLite writes; afterwards the file is whole."""
    database = f"sqlite:///{tmp_path}/berth.db"
    async with opened(database) as engine:
        with lives(database, tmp_path / "pepper") as run:
            steps = await kill_through(run, engine, 100 * times, writes=True)
            tried(run.deaths)
    assert steps > 20, "hardly any writes: are they still counted?"
    check_file = sqlite3.connect(tmp_path / "berth.db")
    assert check_file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check_file.close()


async def test_t04_a_power_cut_loses_nothing_that_was_answered(
    tmp_path: Path, times: int, seed: int, tried: Callable[[int], None]
) -> None:
    """T04: 50 cuts; of what SQLite had not synced, all, half or nothing reached the disk."""
    database = f"sqlite:///{tmp_path}/berth.db"
    with lives(database, tmp_path / "pepper") as run:
        lost = await cut_through(run, database, 50 * times, seed)
        tried(run.deaths)
    assert lost > 10 * times, "hardly a write was lost: is the layer in place?"


async def test_t26_a_rotation_killed_at_every_step_leaves_one_accepted_secret(
    database: str, tmp_path: Path, times: int, tried: Callable[[int], None]
) -> None:
    """T26: 25 rotations on each store; old or new, never both and never neither; repeating it succeeds."""
    async with opened(database) as engine:
        with lives(database, tmp_path / "pepper") as run:
            await rotate_through(run, engine, tmp_path / "pepper", 25 * times)
            assert run.deaths >= 15 * times, "hardly one of them died"
            tried(run.deaths)


async def test_t45_killed_during_a_backup_leaves_the_whole_ones_and_nothing_half(
    database: str, tmp_path: Path, times: int, tried: Callable[[int], None]
) -> None:
    """T45: 40 deaths on each store, at every write of a backup in turn."""
    folder = tmp_path / "backups"
    with lives(database, tmp_path / "pepper") as run:
        steps = await back_up_through(run, folder, 40 * times)
        tried(run.deaths)
    assert steps > 20, "hardly any writes: are they still counted?"
