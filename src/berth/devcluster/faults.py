"""Why a control plane did not start, in one sentence with what to do; told from the end of its log.

The programs are not ours and say what they say: this table is the one place that reads their words.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from berth.errors import UserError

TAIL_BYTES = 20_000
QUOTED = 300

FILE_LIMIT = "a file grew past what this shell allows: raise the limit with `ulimit -f unlimited`"
BUSY = "address already in use"
KNOWN = {
    "no space left on device": "the disk is full: free 500 MB, or choose another place (TMPDIR, --directory)",
    "file too large": FILE_LIMIT,
    "file size limit exceeded": FILE_LIMIT,
    BUSY: "a port is taken: stop what listens there, or start without a fixed port",
    "permission denied": "a file may not be read or written: check who owns the directory",
    "too many open files": "too many files are open: raise the limit with `ulimit -n 8192`",
    "cannot allocate memory": "the machine is out of memory: a control plane wants about 500 MB",
    "exec format error": "the program is for another kind of machine: take it away and prepare again",
}


class StartFailed(UserError):
    """A child ended or never got ready. `busy` tells a lost race for a port from the rest."""

    reason = "StartFailed"

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy

    @classmethod
    def of(cls, name: str, log: Path, what: str) -> Self:
        tail = _tail(log)
        lowered = tail.lower()
        cause = next((words for token, words in KNOWN.items() if token in lowered), None)
        said = f'its log ends with "{_last_words(tail)}"'
        return cls(f"{name} {what}: {cause or said} (log: {log})", busy=BUSY in lowered)


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""


def _last_words(tail: str) -> str:
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    loud = [
        line for line in lines if re.search(r'"level":"(fatal|panic|error)"|^[EF]\d{4} |^Error|panic', line)
    ]
    return _plain((loud or lines or ["nothing"])[-1])[:QUOTED]


def _plain(line: str) -> str:
    """etcd logs JSON; its message and error are the sentence."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    return ": ".join(str(record[key]) for key in ("msg", "error") if key in record)


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Our own file operations fail for the same few reasons; the same sentences for them."""
    try:
        yield
    except OSError as error:
        words = error.strerror or str(error)
        cause = KNOWN.get(os.strerror(error.errno or 0).lower(), words)
        raise UserError(f"cannot write {error.filename or where}: {cause}") from error
