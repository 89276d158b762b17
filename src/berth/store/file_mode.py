"""SQLite files that only their owner can read: the ledger and Splunk's queue, with what SQLite puts beside
them (it gives those the mode of the file itself).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

BESIDE = ("", "-wal", "-shm", "-journal")


def make_private(path: Path) -> None:
    """Make the file where there is none, else take others' rights away. What cannot be done is SQLite's to
    tell, or, of a file that is somebody else's, its owner's to do.

    A file that is there is never opened here: closing it would end the locks that this process has on it.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    for end in BESIDE:
        one = f"{os.path.realpath(path)}{end}"
        with suppress(OSError):
            if os.stat(one).st_mode & 0o077:
                os.chmod(one, 0o600)
