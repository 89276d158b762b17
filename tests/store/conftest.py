"""A fresh engine per test, SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from berth.store.engine import Engine, connect
from berth.store.migrate import migrate


@pytest_asyncio.fixture
async def engine(database: str) -> AsyncIterator[Engine]:
    opened = await connect(database)
    await migrate(opened)
    yield opened
    await opened.close()
