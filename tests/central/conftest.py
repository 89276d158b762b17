"""The API on each store: the same tests on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.central import Options, World, running
from tests.support.postgres import PostgresServer, short_folder

Start = Callable[..., AbstractAsyncContextManager[World]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer(short_folder())
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/berth.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def start(database: str, tmp_path: Path) -> Start:
    """Start the API on this test's database; more than once means replicas, or a restart."""

    def begin(options: Options | None = None) -> AbstractAsyncContextManager[World]:
        return running(database, tmp_path / "pepper", options)

    return begin


@pytest_asyncio.fixture
async def world(start: Start) -> AsyncIterator[World]:
    async with start() as one:
        yield one
