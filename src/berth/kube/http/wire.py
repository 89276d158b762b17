"""The bytes of an HTTP/1.1 answer → status, headers, body. No I/O: `connection.py` feeds it.

Only what an API server and the proxies before it send: a body of known length, in chunks, or until the
connection ends. Measured, this and `connection.py` cost less than half of what a general HTTP library
costs per request (docs/decisions/0004-kubernetes-client.md).
"""

from __future__ import annotations

LONGEST_HEAD = 64 * 1024
BODILESS = (204, 304)


class Malformed(Exception):
    """Bytes that are no HTTP answer, or one that ended too early."""


class Reading:
    """One answer as far as it has come. `parts` is the body so far; whoever takes parts empties the list."""

    __slots__ = (
        "_chunked",
        "_ending",
        "_gap",
        "_left",
        "_pending",
        "done",
        "headers",
        "keep",
        "parts",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0  # 0: the head is not complete
        self.headers: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.done = False
        self.keep = False  # the connection can carry another request afterwards
        self._pending = b""  # of the head, or of a line between chunks
        self._left: int | None = None  # bytes to come of the body or chunk; None: until the connection ends
        self._chunked = False
        self._gap = False  # a chunk was read, its line end was not
        self._ending = False  # the last chunk was read, trailers follow

    def feed(self, data: bytes) -> None:
        if not self.status:
            data = self._feed_head(data)
        if data and self._chunked:
            self._feed_chunks(data)
        elif data:
            self._feed_plain(data)

    def end(self) -> None:
        """The connection ended, which completes only a body without another end."""
        if not self.status or self._chunked or self._left is not None:
            raise Malformed("the connection was cut")
        self.done = True

    def _feed_head(self, data: bytes) -> bytes:
        """Takes the head once it is complete; what is left belongs to the body."""
        data = self._pending + data
        head, found, rest = data.partition(b"\r\n\r\n")
        self._pending = b"" if found else data
        if len(self._pending) > LONGEST_HEAD:
            raise Malformed("the head of the answer has no end")
        if not found:
            return b""
        self._read_head(head.decode("latin-1").split("\r\n"))
        if 100 <= self.status < 200:  # a word in between; the answer follows
            self.status = 0
            return self._feed_head(rest)
        self._read_framing()
        return rest

    def _read_head(self, lines: list[str]) -> None:
        version, _, status = lines[0].partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0") or not status[:3].isdigit():
            raise Malformed("the other side does not speak HTTP/1.1")
        self.status = int(status[:3])
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self.keep = version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"

    def _read_framing(self) -> None:
        length = self.headers.get("content-length")
        if self.status in BODILESS:
            self._left = 0
        elif "transfer-encoding" in self.headers:
            self._chunked = self.headers["transfer-encoding"].lower().endswith("chunked")
            self._left = 0 if self._chunked else None
        elif length is not None:
            self._left = _number(length, 10)
        self.keep = self.keep and self._left is not None
        self.done = self._left == 0 and not self._chunked

    def _feed_plain(self, data: bytes) -> None:
        if self._left is None:
            self.parts.append(data)
            return
        if len(data) > self._left:
            self.keep = False  # more than was announced: nothing after it can be trusted
            data = data[: self._left]
        if data:
            self.parts.append(data)
        self._left -= len(data)
        self.done = self._left == 0

    def _feed_chunks(self, data: bytes) -> None:
        data = self._pending + data
        self._pending = b""
        position = 0
        while position < len(data) and not self.done:
            if self._left:
                piece = data[position : position + self._left]
                self.parts.append(piece)
                self._left -= len(piece)
                self._gap = not self._left
                position += len(piece)
                continue
            end = data.find(b"\r\n", position)
            if end < 0:
                self._pending = _short(data[position:])
                return
            self._line(data[position:end])
            position = end + 2
        if position < len(data):
            self.keep = False

    def _line(self, line: bytes) -> None:
        """A line between chunks: the end of the last one, the size of the next one, or a trailer."""
        if self._ending:
            self.done = not line
        elif self._gap and not line:
            self._gap = False
        else:
            size = _number("" if self._gap else line.partition(b";")[0].decode("latin-1"), 16)
            self._left, self._ending = size, size == 0


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise Malformed("the answer's length cannot be read")
    return number


def _short(pending: bytes) -> bytes:
    if len(pending) > LONGEST_HEAD:
        raise Malformed("a chunk's size has no end")
    return pending
