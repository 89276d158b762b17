"""Server-Sent Events out of bytes: pure, fed in any portions. CRLF, LF or CR; comments; several data
lines; `id` and `retry`; lines and data beyond a bound are dropped rather than collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

LINE_LIMIT = 64 * 1024
DATA_LIMIT = 256 * 1024


@dataclass(frozen=True, slots=True)
class ServerEvent:
    event: str
    data: str
    id: str  # the last one of the stream
    own_id: str = ""  # the frame's own, by which a repetition is known


class EventParser:
    """`last_id` and `retry_ms` follow the stream, also through frames without data."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        self._buffer = b""
        self._event = ""
        self._data: list[str] = []
        self._size = 0
        self._skipping = False
        self._own_id = ""

    def feed(self, chunk: bytes) -> Iterator[ServerEvent]:
        self._buffer += chunk
        while (line := self._next_line()) is not None:
            event = self._line(line)
            if event is not None:
                yield event
        if len(self._buffer) > LINE_LIMIT:
            self._buffer, self._skipping = b"", True

    def _next_line(self) -> bytes | None:
        """A whole line without its end; a CR at the very end waits, since its LF may still come."""
        ends = [at for at in (self._buffer.find(b"\n"), self._buffer.find(b"\r")) if at >= 0]
        if not ends:
            return None
        at = min(ends)
        if self._buffer[at : at + 1] == b"\r" and at + 1 == len(self._buffer):
            return None
        length = 2 if self._buffer[at : at + 2] == b"\r\n" else 1
        line, self._buffer = self._buffer[:at], self._buffer[at + length :]
        if self._skipping:
            self._skipping = False
            self._drop()
            return b":"
        return line

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.decode(errors="replace").partition(":")
        self._field(name, value.removeprefix(" "))
        return None

    def _field(self, name: str, value: str) -> None:
        if name == "data" and self._size + len(value) <= DATA_LIMIT:
            self._data.append(value)
            self._size += len(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_id = self._own_id = value
        elif name == "retry" and value.isascii() and value.isdigit() and len(value) < 10:
            self.retry_ms = int(value)

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent(self._event or "message", "\n".join(self._data), self.last_id, self._own_id)
        found = event if self._data else None
        self._drop()
        return found

    def _drop(self) -> None:
        self._event, self._data, self._size, self._own_id = "", [], 0, ""
