"""Events that wait to be written: by key, bounded, warnings first, the newest kept.

A key is object, type, reason and message. The same key again only raises a count. When all places are taken
the oldest Normal one makes room; a Normal newcomer never drives out a Warning.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

Type = Literal["Normal", "Warning"]


class EventTarget(NamedTuple):
    """What an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Key(NamedTuple):
    target: EventTarget
    type: Type
    reason: str
    message: str


@dataclass(slots=True)
class WaitingEvent:
    """Occurrences that are not written yet."""

    first_at: datetime
    last_at: datetime
    count: int = 1
    tries: int = 0


class Pending:
    def __init__(self, places: int) -> None:
        self._places = places
        self._warnings: OrderedDict[Key, WaitingEvent] = OrderedDict()
        self._normals: OrderedDict[Key, WaitingEvent] = OrderedDict()

    def __len__(self) -> int:
        return len(self._warnings) + len(self._normals)

    @property
    def has_warnings(self) -> bool:
        return bool(self._warnings)

    def repeat(self, key: Key, at: datetime) -> bool:
        """Count once more what waits already; False if it does not."""
        waiting = self._lane(key).get(key)
        if waiting is None:
            return False
        waiting.count += 1
        waiting.last_at = at
        return True

    def add(self, key: Key, waiting: WaitingEvent) -> Key | None:
        """Let it wait; the key that had to go for it, perhaps its own."""
        victim = self._make_room(key) if len(self) >= self._places else None
        if victim != key:
            self._lane(key)[key] = waiting
        return victim

    def put_back(self, key: Key, waiting: WaitingEvent) -> Key | None:
        """First in its lane again, joined with what came meanwhile."""
        newer = self._lane(key).pop(key, None)
        if newer is not None:
            waiting.count += newer.count
            waiting.last_at = newer.last_at
        victim = self.add(key, waiting)
        if victim != key:
            self._lane(key).move_to_end(key, last=False)
        return victim

    def pop(self) -> tuple[Key, WaitingEvent]:
        return (self._warnings or self._normals).popitem(last=False)

    def _lane(self, key: Key) -> OrderedDict[Key, WaitingEvent]:
        return self._warnings if key.type == "Warning" else self._normals

    def _make_room(self, newcomer: Key) -> Key:
        if self._normals:
            return self._normals.popitem(last=False)[0]
        if newcomer.type == "Warning" and self._warnings:
            return self._warnings.popitem(last=False)[0]
        return newcomer
