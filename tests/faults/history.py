"""What clients know: every call as invoked, and as ok, failed or unknown; and whether all of it can be true.

A holding is certain from the moment its address was answered until giving it back was first invoked: no
matter what was going on in between, nobody else may be told that address meanwhile. What nobody answered may
have happened or not, and is held against no one.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

FOREVER = float("inf")


class Outcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one client: `take` answers with an address, `give` gives it back."""

    who: str
    what: str
    outcome: Outcome
    invoked: float
    answered: float = FOREVER
    address: str = ""


@dataclass(frozen=True, slots=True)
class Holding:
    who: str
    address: str
    since: float
    until: float


@dataclass(slots=True)
class History:
    calls: list[Call] = field(default_factory=list)

    def note(self, who: str, what: str, outcome: Outcome, invoked: float, address: str = "") -> None:
        self.calls.append(Call(who, what, outcome, invoked, time.monotonic(), address))

    def violations(self, stored: Mapping[str, str] | None = None) -> list[str]:
        """`stored`, where it is known, is who holds what in the end: holder → address."""
        holdings = certain(self.calls)
        found = [*_moved(self.calls), *_overlapping(holdings)]
        if stored is None:
            return found
        return [*found, *_lost(holdings, stored), *_unasked(self.calls, stored)]


def certain(calls: Iterable[Call]) -> list[Holding]:
    found = []
    for who, own in _by_who(calls).items():
        gives = [call.invoked for call in own if call.what == "give" and call.outcome is not Outcome.FAILED]
        for call in own:
            if call.what == "take" and call.outcome is Outcome.OK:
                ends = min((at for at in gives if at >= call.invoked), default=FOREVER)
                found.append(Holding(who, call.address, call.answered, ends))
    return found


def _by_who(calls: Iterable[Call]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.invoked):
        found[call.who].append(call)
    return found


def _overlapping(holdings: Iterable[Holding]) -> list[str]:
    """I1: two were sure of one address at one time."""
    by_address: dict[str, list[Holding]] = defaultdict(list)
    for one in sorted(holdings, key=lambda one: one.since):
        by_address[one.address].append(one)
    return [
        f"I1: {address} was answered to {two.who} while {one.who} had it"
        for address, line in by_address.items()
        for one, two in pairwise(line)
        if one.who != two.who and two.since < one.until
    ]


def _moved(calls: Iterable[Call]) -> list[str]:
    """I5: who asks again without having given anything back hears the same."""
    found = []
    for who, own in _by_who(calls).items():
        held = ""
        for call in own:
            if call.what == "give" and call.outcome is not Outcome.FAILED:
                held = ""
            elif call.what == "take" and call.outcome is Outcome.OK:
                if held and held != call.address:
                    found.append(f"I5: {who} had {held} and was answered {call.address}")
                held = call.address
    return found


def _lost(holdings: Iterable[Holding], stored: Mapping[str, str]) -> list[str]:
    """I3: what was answered and never given back is stored."""
    return [
        f"I3: {one.who} was answered {one.address}; stored is {stored.get(one.who, 'nothing')}"
        for one in holdings
        if one.until == FOREVER and stored.get(one.who) != one.address
    ]


def _unasked(calls: Iterable[Call], stored: Mapping[str, str]) -> list[str]:
    """I2: who holds something has asked for it, and not surely given it back since."""
    found = []
    own = _by_who(calls)
    for who, address in stored.items():
        takes = [call.invoked for call in own.get(who, ()) if call.what == "take"]
        given = [call for call in own.get(who, ()) if call.what == "give" and call.outcome is Outcome.OK]
        if not takes or any(call.invoked > max(takes) for call in given):
            found.append(f"I2: {address} is held for {who}, who does not have it")
    return found
