"""Server-Sent Events out of bytes: pure, fed in any portions. CRLF, LF or CR; comments; several data
lines; `id` and `retry`. A frame whose lines, or whose data, go beyond a bound is dropped rather than
collected, and one that will not end is an error: what a stream can cost is bounded, and linear in its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LINE_LIMIT = 64 * 1024
DATA_LIMIT = 256 * 1024
LINES_LIMIT = 4096  # of one frame
FRAME_LIMIT = 4 * 1024 * 1024  # bytes until a frame has to end, dropped or not
ID = re.compile(r"[\x20-\x7e]{0,256}")  # what can be sent back as a header
BLANKS = re.compile(rb"\n{3,}")  # more than one blank line ends nothing


class Endless(ValueError):
    """A frame that goes on and on."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    event: str
    data: str
    id: str  # the last one of the stream that can be sent back
    own_id: str = ""  # the frame's own, by which a repetition is known


class EventParser:
    """`last_id` and `retry_ms` follow the stream, also through frames without data."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        self._rest = b""  # a line that has not ended
        self._event = self._own_id = ""
        self._data: list[str] = []
        self._size = self._lines = 0  # of that data, and of the frame
        self._taken = 0  # bytes of the frame, kept or not
        self._dropped = False

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        text = self._rest + chunk
        waiting = b"\r" if text.endswith(b"\r") else b""  # its LF may still come
        text = text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = BLANKS.sub(b"\n\n", text).split(b"\n")
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event
        if len(rest) > LINE_LIMIT:
            self._count(len(rest))
            self._dropped, rest = True, b":"  # what is still to come of this line is a comment
        self._rest = rest + waiting

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        self._lines += 1
        self._count(len(line) + 1)
        self._dropped = self._dropped or self._lines > LINES_LIMIT or len(line) > LINE_LIMIT
        if not self._dropped:
            name, _, value = line.decode(errors="replace").partition(":")
            self._field(name, value.removeprefix(" "))
        return None

    def _count(self, size: int) -> None:
        self._taken += size
        if self._taken > FRAME_LIMIT:
            raise Endless(f"a frame of more than {FRAME_LIMIT} bytes")

    def _field(self, name: str, value: str) -> None:
        if name == "data":
            self._size += len(value)
            self._dropped = self._size > DATA_LIMIT
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._own_id = value
            self.last_id = value if ID.fullmatch(value) else self.last_id
        elif name == "retry" and value.isascii() and value.isdigit() and len(value) < 10:
            self.retry_ms = int(value)

    def _dispatch(self) -> ServerEvent | None:
        found = None
        if self._data and not self._dropped:
            event = self._event or "message"
            found = ServerEvent(event, "\n".join(self._data), self.last_id, self._own_id)
        if self._taken:
            self._begin_frame()
        return found

    def _begin_frame(self) -> None:
        self._event, self._data, self._own_id = "", [], ""
        self._size = self._lines = self._taken = 0
        self._dropped = False
