"""Chunks of a watch stream → whole lines, of any length, each byte looked at once.

A Kubernetes object may be a megabyte and more and come in a thousand chunks, so a line is joined once, when
its end is there.
"""

from __future__ import annotations


class Lines:
    """Keeps what came of a line until its end comes."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines this chunk completes, without their ends; blank ones are left out."""
        pieces = chunk.split(b"\n")
        tail = pieces.pop()
        if pieces and self._parts:
            pieces[0] = b"".join((*self._parts, pieces[0]))
            self._parts.clear()
        if tail:
            self._parts.append(tail)
        return [piece for piece in pieces if piece]

    @property
    def is_cut(self) -> bool:
        """True in the middle of a line."""
        return bool(self._parts)
