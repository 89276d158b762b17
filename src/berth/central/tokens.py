"""A token for a neighbour, in a file that somebody else rotates while we run: read each time it is used, so
that a new one counts at once. While the file is away, empty or half written, the last good one stays.
"""

from __future__ import annotations

import re
from pathlib import Path

TOKEN = re.compile(r"[\x20-\x7e]{1,8192}")  # what can be sent as a header


class RotatedToken:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ""

    def read(self) -> str:
        """OSError or ValueError if there never was one."""
        try:
            self._last = read_token(self._path)
        except (OSError, ValueError):
            if not self._last:
                raise
        return self._last


def read_token(path: Path) -> str:
    """OSError or ValueError: what is wrong with the file, never what is in it."""
    text = path.read_text().strip()
    if not text:
        raise ValueError("the file is empty")
    if not TOKEN.fullmatch(text):
        raise ValueError("the file is not one line of printable ASCII")
    return text
