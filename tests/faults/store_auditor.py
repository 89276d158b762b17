"""The auditor of the IPAM-API's stores: a process of its own that reads SQLite or PostgreSQL every 100 ms.

It checks what must hold at any moment (`books.py`): no address has two rows, or two holders where nobody
shares; every address lies in its zone and has a holder; and what the history tells is what the table says.
What has lapsed may wait for the next sweep; for longer than anybody may have to wait (I4) it is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO

from tests.faults.auditor import EVERY_SECONDS, LOST_SECONDS, Lost, Report, looking, say
from tests.faults.books import AWAY, Books, Reader, lapsed
from tests.faults.stage import load_of_machine


async def audit(books: Books, out: TextIO) -> None:
    reader, lost = Reader(books), Lost(LOST_SECONDS * load_of_machine())
    while True:
        await _look(reader, lost, out)
        await asyncio.sleep(EVERY_SECONDS)


async def _look(reader: Reader, lost: Lost, out: TextIO) -> None:
    try:
        page = await reader.page()
    except AWAY:
        lost.since.clear()
        return
    litter = lapsed(page) if reader.books.swept else []
    say([*reader.judge(page), *lost.note(litter, time.monotonic())], out)


@asynccontextmanager
async def store_audited(books: Books, home: Path) -> AsyncIterator[Report]:
    """The auditor beside what happens in the block."""
    async with looking(home / "audit-store.jsonl", _main, books) as report:
        yield report


@asynccontextmanager
async def store_right(books: Books, home: Path) -> AsyncIterator[None]:
    """Whatever it saw is a failure, told when the block is left."""
    async with store_audited(books, home) as report:
        yield
    assert not report.violations, report.violations[:10]


def _main(books: Books, lines: str) -> None:
    with Path(lines).open("w") as out:
        asyncio.run(audit(books, out))
