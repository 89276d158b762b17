"""The API on each store: the same tests on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.central import Options, World, running

Start = Callable[..., AbstractAsyncContextManager[World]]


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
