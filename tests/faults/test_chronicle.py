"""The chronicle, on stories made by hand: what lasted for one revision only is found."""

from __future__ import annotations

from typing import cast

from tests.faults.chronicle import Happening, HistoryFeed
from tests.faults.metal3 import Metal3
from tests.faults.trade import Market, Object
from tests.support.metal3 import claim

from berth.dialects.metal3 import kinds
from berth.kube.client import Client

TRADE = Metal3()
MARKET = Market(TRADE, cast(Client, None), "n")


def named(name: str, address: str = "", uid: str = "") -> Object:
    body = claim(name)
    body["metadata"] |= {"name": name, "uid": uid or name}
    return {**body, "status": {"address": {"name": address}}} if address else body


def record(name: str, address: str, holder: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"address": address, "claim": {"name": holder}}}


def told(*happenings: tuple[str, Object, bool], dark: tuple[int, int] | None = None) -> list[str]:
    """Claims, records and whether they went, in this order from revision 1 on."""
    chronicle = HistoryFeed(TRADE, {resource.key: [] for resource in TRADE.resources})
    for revision, (kind, obj, gone) in enumerate(happenings, 1):
        chronicle.happenings.append(Happening(revision, kind, obj, gone))
    chronicle.dark += [dark] if dark else []
    return chronicle.violations(MARKET)


CLAIM, RECORD = kinds.CLAIM.key, kinds.ADDRESS.key
SERVED = (
    (CLAIM, named("a"), False),
    (RECORD, record("p-1", "10.0.0.1", "a"), False),
    (CLAIM, named("a", "p-1"), False),
)


def test_a_claim_that_is_served_and_goes_is_no_violation() -> None:
    gone = ((CLAIM, named("a", "p-1"), True), (RECORD, record("p-1", "10.0.0.1", "a"), True))
    assert told(*SERVED, *gone) == []


def test_an_address_that_was_gone_for_a_moment_is_found() -> None:
    again = ((RECORD, record("p-1", "10.0.0.1", "a"), True), (RECORD, record("p-1", "10.0.0.1", "a"), False))
    assert told(*SERVED, *again) == ["at revision 4: I3: a shows p-1, which is gone"]
    assert told(*SERVED, *again, dark=(3, 5)) == []


def test_an_address_with_two_holders_for_a_moment_is_found() -> None:
    second = (
        (CLAIM, named("b"), False),
        (RECORD, record("p-x", "10.0.0.1", "b"), False),
        (CLAIM, named("b", "p-x"), False),
        (CLAIM, named("b", "p-x"), True),
    )
    assert told(*SERVED, *second) == ["at revision 6: I1: 10.0.0.1 has ['p-1', 'p-x']"]


def test_an_answer_that_changes_is_found() -> None:
    moved = ((RECORD, record("p-2", "10.0.0.2", "a"), False), (CLAIM, named("a", "p-2"), False))
    assert told(*SERVED, *moved) == ["at revision 5: I5: a had p-1 and has p-2"]
