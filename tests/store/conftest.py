"""A fresh engine per test, SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.postgres import PostgresServer, short_folder

from berth.store.engine import Engine, connect
from berth.store.migrate import migrate


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer(short_folder())
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/berth.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.database()


@pytest_asyncio.fixture
async def engine(database: str) -> AsyncIterator[Engine]:
    opened = await connect(database)
    await migrate(opened)
    yield opened
    await opened.close()
