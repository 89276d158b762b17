"""How the dev cluster writes its files: private ones with mode 0600 from the first byte, and locks that
vanish with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

LOOKS = 5
LOOK_SECONDS = 0.01


def write_private(path: Path, content: bytes) -> None:
    """Replaces the file in one step, so that a reader sees the old or the new one, never half."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    fresh.replace(path)


class Lock:
    """An flock on a file: whoever holds it is alive, whatever the file says. Its text is the holder's pid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def take(self) -> bool:
        """At once or not at all; a moment's patience because `holder` takes it for an instant to look."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for _ in range(LOOKS):
            if _try(fd, fcntl.LOCK_EX):
                self._fd = fd
                os.truncate(fd, 0)
                os.write(fd, str(os.getpid()).encode())
                return True
            time.sleep(LOOK_SECONDS)
        os.close(fd)
        return False

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def holder(path: Path) -> int | None:
    """The pid of the living process that holds the lock, if one does."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return None if _try(fd, fcntl.LOCK_SH) else int(os.read(fd, 32) or b"0") or None
    finally:
        os.close(fd)


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
