"""API servers that can be killed at a chosen step. One process loads everything once and then makes a
child per life:

    python -m tests.support.mortal      reads lines {"database": …, "pepper": …, "at": 7, "writes": false}

and answers each with the child's pid and port. `at` counts the steps of transactions (0: live on); with
`writes` it counts SQLite's own writes to its files instead, and with `power` its writes and syncs, keeping
account of what is safe on disk (`power.py`). `slow` is how many seconds a sync takes. `plant` names a bug
this life has. With `backups` a POST to /backup makes one in that folder, and `at` counts what is written of
it. The child dies by SIGKILL, as in a crash: nothing is tidied up.
"""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
import gc
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from tests.support.central import World, running
from tests.support.power import watch_files

from berth import log
from berth.central import answers, backups
from berth.central.app import ApiRequest
from berth.central.backups import Backups
from berth.central.integrations.event_log import EventLog
from berth.central.settings import Backup
from berth.store import kv
from berth.store.engine import sqlite_path
from berth.store.postgres import Postgres, PostgresTransaction
from berth.store.snapshot import Output
from berth.store.sqlite import Sqlite, SqliteTransaction

KEPT: list[Any] = []  # callbacks that C code calls must not be collected


class Countdown:
    def __init__(self, steps: int) -> None:
        self._left = steps

    def step(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def plant_in_transactions(countdown: Countdown) -> None:
    """A step before and after each statement, and before and after each commit."""
    for kind in (SqliteTransaction, PostgresTransaction):
        for name in ("lock", "rows", "write", "many"):
            setattr(kind, name, stepping(getattr(kind, name), countdown))
    for engine in (Sqlite, Postgres):
        setattr(engine, "transaction", committing(engine.transaction, countdown))  # noqa: B010


def stepping(original: Callable[..., Any], countdown: Countdown) -> Callable[..., Any]:
    async def stepped(*args: Any) -> Any:
        countdown.step()
        result = await original(*args)
        countdown.step()
        return result

    return stepped


def committing(original: Callable[..., Any], countdown: Countdown) -> Callable[..., Any]:
    @asynccontextmanager
    async def stepped(self: Any, **how: bool) -> AsyncIterator[Any]:
        async with original(self, **how) as tx:
            yield tx
            countdown.step()
        countdown.step()

    return stepped


def plant_in_writes(countdown: Countdown) -> None:
    """Count SQLite's pwrite calls, by its own door for replacing system calls."""
    library = ctypes.CDLL(ctypes.util.find_library("sqlite3") or "libsqlite3.so.0")
    libc = ctypes.CDLL(None, use_errno=True)
    library.sqlite3_vfs_find.restype = ctypes.c_void_p
    vfs = ctypes.cast(library.sqlite3_vfs_find(None), ctypes.POINTER(ctypes.c_void_p))
    pwrite_type = ctypes.CFUNCTYPE(
        ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
    )
    libc.pwrite.restype = ctypes.c_ssize_t
    libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]

    def pwrite(file: int, data: int, size: int, at: int) -> int:
        countdown.step()
        return int(libc.pwrite(file, data, size, at))

    callback = pwrite_type(pwrite)
    KEPT.append(callback)
    set_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    set_system_call = set_type(vfs[SET_SYSTEM_CALL])
    for name in (b"pwrite", b"pwrite64"):
        set_system_call(ctypes.cast(vfs, ctypes.c_void_p), name, ctypes.cast(callback, ctypes.c_void_p))


# The word of struct sqlite3_vfs (version 3) that holds xSetSystemCall: three ints in two words, pNext, zName,
# pAppData, twelve methods of version 1, xCurrentTimeInt64, then ours.
SET_SYSTEM_CALL = 2 + 3 + 12 + 1


def plant_in_backups(countdown: Countdown) -> None:
    """A step before and after each line, which then is on its way to the disk; the last of them, the file's
    name, the note that it was made, and the removal of old ones.
    """
    write = Output.write

    def written(self: Output, data: bytes) -> None:
        countdown.step()
        write(self, data)
        if self._packed is not None:
            self._packed.flush()
        self._raw.flush()
        countdown.step()

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any) -> Any:
            countdown.step()
            result = original(*args)
            countdown.step()
            return result

        return stepped

    setattr(Output, "write", written)  # noqa: B010
    setattr(Output, "finish", around(Output.finish))  # noqa: B010
    setattr(Path, "replace", around(Path.replace))  # noqa: B010
    setattr(kv, "set_mark", stepping(kv.set_mark, countdown))  # noqa: B010
    setattr(backups, "tidy", around(backups.tidy))  # noqa: B010


def plant_bug(name: str) -> None:
    from tests.central.faults.plants import PLANTS  # only where one is asked for

    PLANTS[name](setattr)


async def live(order: dict[str, Any]) -> None:
    countdown, pause = Countdown(0), 0.0
    if order.get("plant"):
        plant_bug(order["plant"])
    if order.get("power") or order.get("slow"):
        watch_files(sqlite_path(order["database"]), lambda: countdown.step(), lambda: time.sleep(pause))
    async with running(order["database"], Path(order["pepper"])) as world:
        countdown, pause = Countdown(order.get("at", 0)), order.get("slow", 0.0)
        if order.get("backups"):
            plant_in_backups(countdown)
            serve_backups(world, Path(order["backups"]))
        elif order.get("writes"):
            plant_in_writes(countdown)
        elif not order.get("power"):
            plant_in_transactions(countdown)
        serve_sweeps(world)
        say({"pid": os.getpid(), "port": int(world.url.rpartition(":")[2])})
        await asyncio.get_running_loop().create_future()


def serve_sweeps(world: World) -> None:
    """Sweeps happen when a test asks for one, so that every life has the same steps."""

    async def sweep(_: ApiRequest) -> web.Response:
        swept = await world.sweep()
        return answers.json(200, {"freed": swept.addresses, "held_back": swept.held_back})

    world.api._routes["/sweep"] = {"POST": sweep}


def serve_backups(world: World, folder: Path) -> None:
    settings = Backup(1.0, folder, keep=3)
    where = (settings, folder, world.database, world.ledger.engine)
    every = Backups(*where, world.api.metrics, EventLog(), "a life")

    async def back_up(_: ApiRequest) -> web.Response:
        return answers.json(200, {"file": (await every.back_up()).name})

    world.api._routes["/backup"] = {"POST": back_up}


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    log.configure("error")  # standard output is for answers
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            asyncio.run(live(json.loads(line)))
            os._exit(0)


if __name__ == "__main__":
    main()
