"""The checker of client histories, on histories made by hand."""

from __future__ import annotations

import pytest
from tests.faults.history import Call, History, Outcome

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def take(who: str, address: str, invoked: float, answered: float, outcome: Outcome = OK) -> Call:
    return Call(who, "take", outcome, invoked, answered, address if outcome is OK else "")


def give(who: str, invoked: float, answered: float, outcome: Outcome = OK) -> Call:
    return Call(who, "give", outcome, invoked, answered)


@pytest.mark.parametrize(
    "calls",
    [
        [take("a", "1", 0, 1), give("a", 2, 5), take("b", "1", 0, 3)],  # given back while another asked
        [take("a", "1", 0, 1), take("a", "1", 2, 3)],  # asked twice, answered the same
        [take("a", "1", 0, 1, UNKNOWN), take("b", "1", 2, 3)],  # nobody knows that a has it
        [take("a", "1", 0, 1), give("a", 2, 3, UNKNOWN), take("b", "1", 2.5, 4)],
        [take("a", "1", 0, 1), give("a", 2, 3), take("a", "2", 4, 5)],
    ],
)
def test_what_can_be_true_is_no_violation(calls: list[Call]) -> None:
    assert History(calls).violations() == []


@pytest.mark.parametrize(
    ("calls", "kind"),
    [
        ([take("a", "1", 0, 1), take("b", "1", 2, 3)], "I1"),
        ([take("a", "1", 0, 1), take("b", "1", 2, 3), give("a", 4, 5)], "I1"),
        ([take("a", "1", 0, 1), give("a", 2, 3, FAILED), take("b", "1", 4, 5)], "I1"),
        ([take("a", "1", 0, 1), take("a", "2", 2, 3)], "I5"),
    ],
)
def test_what_cannot_be_true_is_found(calls: list[Call], kind: str) -> None:
    assert [text[:2] for text in History(calls).violations()] == [kind]


@pytest.mark.parametrize(
    ("calls", "stored", "kinds"),
    [
        ([take("a", "1", 0, 1)], {"a": "1"}, []),
        ([take("a", "1", 0, 1)], {}, ["I3"]),
        ([take("a", "1", 0, 1)], {"a": "2"}, ["I3"]),
        ([take("a", "1", 0, 1, UNKNOWN)], {"a": "7"}, []),
        ([take("a", "1", 0, 1, UNKNOWN)], {}, []),
        ([take("a", "1", 0, 1), give("a", 2, 3)], {"a": "1"}, ["I2"]),
        ([take("a", "1", 0, 1), give("a", 2, 3, UNKNOWN)], {"a": "1"}, []),
        ([], {"a": "1"}, ["I2"]),
    ],
)
def test_the_end_fits_what_clients_know(calls: list[Call], stored: dict[str, str], kinds: list[str]) -> None:
    assert [text[:2] for text in History(calls).violations(stored)] == kinds
