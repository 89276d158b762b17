"""What is running on this machine, as far as tests about leaving nothing behind need to know."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def is_alive(pid: int) -> bool:
    """A zombie counts as gone: it waits for its parent only."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def mentioning(text: str) -> list[int]:
    """The processes other than this one whose command line has the text."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid() and is_alive(int(directory.name)):
            try:
                line = (directory / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(int(directory.name))
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """A bounded poll; whether the condition came true."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
