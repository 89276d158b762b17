"""How the dev cluster writes its files: private ones with mode 0600 from the first byte, and locks that
vanish with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replaces the file in one step, so that a reader sees the old or the new one, never half."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    fresh.replace(path)


class Lock:
    """An flock on a file: whoever holds it is alive, whatever the file says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def take(self) -> bool:
        """At once or not at all."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock; does not disturb it."""
    lock = Lock(path)
    if not path.exists():
        return False
    if not lock.take():
        return True
    lock.release()
    return False


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Yields whether the lock was free; released at the end of the block."""
    lock = Lock(path)
    try:
        yield lock.take()
    finally:
        lock.release()
