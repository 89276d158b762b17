"""A word of the run, in an annotation of every claim: it may turn up in no log, no Event and no other object.

Every market has one of its own and looks for it when it closes, whatever the row was about.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults.trade import Market, claim_kinds

from berth.control.events import EVENTS


async def hits(home: Path, market: Market) -> list[str]:
    """I6, in all that was written here."""
    files = _files(home, market)
    events = (await market.client.list(EVENTS, market.namespace)).items
    others = [
        one["metadata"]["name"]
        for kind, objects in (await market.snapshot()).items()
        for one in objects
        if kind not in claim_kinds(market.trade) and market.word in str(one)
    ]
    told = ["an Event"] * (market.word in str(events))
    return [f"I6: {market.word} is in {where}" for where in (*files, *told, *others)]


def _files(home: Path, market: Market) -> list[str]:
    own = (path for path in home.glob(f"*{market.namespace}*") if path.is_file())
    return [path.name for path in own if market.word.encode() in path.read_bytes()]
