"""A disk that forgets: what SQLite has written and not yet synced is remembered as such, and a power cut
loses all of it or any part of it.

`watch_files` runs in the server's process and stands between SQLite and its files (a layer on its own VFS).
It keeps beside each file what is safe (`.durable`) and, in order, what was written since (`.unsynced`).
`cut` runs in the test, once that process is dead, and makes the files what a machine would find after the
power came back.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

KEPT: list[Any] = []  # what C code points to must not be collected
POINTER = ctypes.c_void_p
WATCHED = ("", "-wal", "-journal")
# Words of struct sqlite3_vfs and struct sqlite3_io_methods.
X_OPEN = 5
X_WRITE, X_TRUNCATE, X_SYNC, METHODS = 3, 4, 5, 19

# The name as SQLite's own pointer: it keeps it, and a copy of ours would be gone by then.
OPEN = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, POINTER, ctypes.c_int, POINTER)
WRITE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER, ctypes.c_int, ctypes.c_int64)
TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_int64)
SYNC = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_int)


class Disk:
    """The files of one database, as the process writes them."""

    def __init__(self, database: Path, step: Callable[[], None], linger: Callable[[], None]) -> None:
        self._names = {str(database.resolve()) + end for end in WATCHED}
        self._step = step
        self._linger = linger
        self._open: dict[int, Path] = {}  # by the address of SQLite's file object
        self._layers: dict[int, Any] = {}  # by the address of the methods below
        for name in self._names:
            keep(Path(name))

    def opened(self, name: int | None, file: int) -> None:
        path = ctypes.string_at(name).decode() if name else ""
        if path not in self._names:
            return
        self._open[file] = Path(path)
        methods = ctypes.cast(file, ctypes.POINTER(POINTER))
        below = methods[0]
        assert below is not None
        methods[0] = ctypes.addressof(self._layer(below))

    def _layer(self, below: int) -> Any:
        """The methods of a file with three of them replaced."""
        if below not in self._layers:
            layer = (POINTER * METHODS).from_buffer_copy((POINTER * METHODS).from_address(below))
            for word, kind, wrap in (
                (X_WRITE, WRITE, self._write),
                (X_TRUNCATE, TRUNCATE, self._truncate),
                (X_SYNC, SYNC, self._sync),
            ):
                callback = kind(wrap(kind(layer[word] or 0)))
                KEPT.append(callback)
                layer[word] = ctypes.cast(callback, POINTER)
            self._layers[below] = layer
        return self._layers[below]

    def _write(self, original: Any) -> Callable[[int, int, int, int], int]:
        def write(file: int, data: int, size: int, at: int) -> int:
            self._step()
            self._note(file, at, ctypes.string_at(data, size))
            return int(original(file, data, size, at))

        return write

    def _truncate(self, original: Any) -> Callable[[int, int], int]:
        def truncate(file: int, size: int) -> int:
            self._step()
            self._note(file, size, None)
            return int(original(file, size))

        return truncate

    def _sync(self, original: Any) -> Callable[[int, int], int]:
        def sync(file: int, flags: int) -> int:
            self._step()
            self._linger()
            code = int(original(file, flags))
            keep(self._open[file])
            self._step()
            return code

        return sync

    def _note(self, file: int, at: int, data: bytes | None) -> None:
        with beside(self._open[file], "unsynced").open("ab") as log:
            pickle.dump((at, data), log)


def watch_files(database: Path, step: Callable[[], None], linger: Callable[[], None] = lambda: None) -> None:
    """Put the layer between SQLite and the files of this database, for every connection opened later. At each
    sync it lingers.
    """
    library = ctypes.CDLL(ctypes.util.find_library("sqlite3") or "libsqlite3.so.0")
    library.sqlite3_vfs_find.restype = POINTER
    vfs = ctypes.cast(library.sqlite3_vfs_find(None), ctypes.POINTER(POINTER))
    original, disk = OPEN(vfs[X_OPEN]), Disk(database, step, linger)

    def open_file(this: int, name: int | None, file: int, flags: int, out: int) -> int:
        code = int(original(this, name, file, flags, out))
        if code == 0:
            disk.opened(name, file)
        return code

    callback = OPEN(open_file)
    KEPT.extend((original, callback, disk))
    vfs[X_OPEN] = ctypes.cast(callback, POINTER)


def beside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.name}.{word}")


def keep(path: Path) -> None:
    """Everything written so far is safe."""
    part = beside(path, "part")
    if path.exists():
        shutil.copyfile(path, part)
    else:
        part.write_bytes(b"")
    part.replace(beside(path, "durable"))
    beside(path, "unsynced").unlink(missing_ok=True)


def cut(database: Path, random: Random) -> int:
    """The power is gone: of what was not synced, each write got through or not. Returns how many did not."""
    lost = 0
    share = random.choice((0.0, 0.5, 1.0))
    for path in (database.with_name(database.name + end) for end in WATCHED):
        content = bytearray(beside(path, "durable").read_bytes())
        for at, data in unsynced(path):
            if random.random() < share:
                lost += 1
            else:
                apply(content, at, data)
        if content:
            path.write_bytes(content)
        else:
            path.unlink(missing_ok=True)
    database.with_name(database.name + "-shm").unlink(missing_ok=True)  # it was memory
    return lost


def unsynced(path: Path) -> list[tuple[int, bytes | None]]:
    log = beside(path, "unsynced")
    found: list[tuple[int, bytes | None]] = []
    if log.exists():
        with log.open("rb") as file:
            while True:
                try:
                    found.append(pickle.load(file))
                except (EOFError, pickle.UnpicklingError):  # the last one was cut off by the death itself
                    break
    return found


def apply(content: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del content[at:]
        return
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data
